"""A login that is lent to one session at a time: handed over whole, also while pages go on using it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from support.browsing import again, new_view, opened, running, text_of
from support.login_site import LoginSite
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import LoginBusy, LoginUnavailable, NotAllowed, OutcomeUnknown
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.store.base import NEEDS_HUMAN, NEW, OK, UNCHECKED
from statehold.tools.browser import errors

from .conftest import Lender, Lending, session

ROUNDS = 3
LONG_SECONDS = 8.0


async def test_a_session_has_a_login_until_it_gives_it_back(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.error("navigate", url=shop.address + "/")
        assert shop.statuses == []
        assert "another session" not in await browse.text("login_list")
        await browse.text("login_use", login="shop")
        assert "this session has it" in await browse.text("login_list")
        assert "Ada" in await browse.text("navigate", url=shop.address + "/")
        assert await browse.value("localStorage.token") == "storage-token-of-ada"
        assert await lender.cookie() == shop.valid
        await browse.value("localStorage.token = 'newer-token-of-ada'")
        await browse.text("login_release", login="shop")
        value = await lender.value()
        assert "newer-token-of-ada" in (value.origins[shop.address].items or "")
        assert await browse.connection.session.context.cookies() == []
        assert await browse.value("localStorage.length") == 0
        await browse.error("navigate", url=shop.address + "/")
        row = await lender.row()
        assert (row.state, row.session, row.lease_ends_at) == (OK, "", 0.0)


@pytest.mark.parametrize(
    ("path", "seconds"), matrix(("/poll", 0.0), ("/worker", 0.0), ("/poll", LONG_SECONDS), quick=1)
)
async def test_a_login_with_reuse_detection_survives_hand_overs_between_polling_pages(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path, path: str, seconds: float
) -> None:
    async with lending(data) as service, session(service) as one, session(service) as two:
        is_first, ends_at, count = True, anyio.current_time() + seconds, 0
        while count < ROUNDS or anyio.current_time() < ends_at:
            for browse in (one, two):
                await browse.text("login_use", login="shop")
                if is_first:
                    await browse.text("navigate", url=shop.address + path)
                await shop.wait_answers(3)
                await browse.text("login_release", login="shop")
            is_first, count = False, count + 1
    assert set(shop.statuses) == {200}
    assert await lender.cookie() == shop.valid


async def test_a_login_that_another_session_has_is_busy(
    lending: Lending, data: Path, lender: Lender, shop: LoginSite
) -> None:
    async with lending(data) as service, session(service) as one, session(service) as two:
        await one.text("login_use", login="shop")
        assert "another session has it" in await two.text("login_list")
        with pytest.raises(LoginBusy) as busy:
            await two.text("login_use", login="shop", wait_seconds=0)
        assert busy.value.retry_after is not None


async def test_a_paused_session_takes_its_login_again_when_it_is_resumed(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        saved = await browse.saved()
        assert "login-" not in str(saved.data)
        assert "storage-token" not in str(saved.data)
        async with again(browse) as resumed:
            assert "this session has it" in await resumed.text("login_list")
            assert "Ada" in await resumed.text("navigate", url=shop.address + "/")
            assert (await lender.row()).state == OK
    assert set(shop.statuses) == {200}


async def test_a_login_of_a_browser_that_died_is_unchecked(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        context = browse.connection.session.context
        assert context.browser is not None
        await context.browser.close()
        await browse.connection.lost.wait()
        await browse.connection.aclose()
        row = await lender.row()
        assert (row.state, row.session) == (UNCHECKED, browse.view.id)
        async with opened(service, browse.next_view()) as resumed:
            assert "Ada" in await resumed.text("navigate", url=shop.address + "/")


@pytest.mark.thorough
async def test_a_site_that_does_not_answer_leaves_the_login_unchecked(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        await browse.value("void fetch('/hang')")
        await browse.text("login_release", login="shop")
        assert (await lender.row()).state == UNCHECKED


@pytest.mark.thorough
async def test_a_login_that_is_in_the_storage_of_its_site_only_is_one(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    await lender.store.logins.delete(LOCAL.key, "shop")
    async with lending(data) as service, session(service) as browse:
        assert "; new" in await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/login")
        await browse.text("login_release", login="shop")
        assert (await lender.row()).state == NEW
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/login")
        await browse.value("localStorage.token = 'token-of-ada'")
        await browse.text("login_release", login="shop")
    assert (await lender.row()).state == UNCHECKED


async def test_a_closed_page_does_not_hold_a_login_back(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        await browse.value("void fetch('/hang')")
        await browse.page.close()
        await browse.text("login_release", login="shop")
        assert (await lender.row()).state == OK


async def test_a_slow_answer_is_waited_for_until_its_headers(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        shop.body_seconds = 30.0
        with anyio.fail_after(10):
            await browse.page.evaluate("fetch('/api').then(() => 1)")
            await browse.text("login_release", login="shop")
        shop.body_seconds = 0.0
        row = await lender.row()
        assert row.state == OK
        assert await lender.cookie() == shop.valid


@pytest.mark.thorough
async def test_a_login_that_ends_is_cut_within_a_second_or_two(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/poll")
        await shop.wait_answers(3)
        row = await lender.row()
        await lender.store.logins.put(replace(row, state=NEEDS_HUMAN, reason="revoked", session=""))

        async def is_cut() -> bool:
            return not await browse.connection.session.context.cookies()

        with anyio.fail_after(3):
            await until(is_cut)
        requests = len(shop.statuses)
        text = await browse.text("snapshot")
        assert "no more with this session" in text
        with pytest.raises(LoginUnavailable, match="needs human: revoked"):
            await browse.text("login_use", login="shop")
        assert len(shop.statuses) == requests


async def test_a_login_that_is_lost_while_it_is_lent_is_cut(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_list")
        logins = browse.connection.logins
        assert logins is not None
        leases = logins._leases  # pyright: ignore[reportPrivateUsage]

        async def is_taken() -> bool:
            return (await lender.row()).session == browse.view.id

        async def is_cut() -> bool:
            result = await browse.call("navigate", url=shop.address + "/")
            return "call login_use" in text_of(result)

        # Between the lease and the context.
        async with anyio.create_task_group() as tasks, logins._lock:  # pyright: ignore[reportPrivateUsage]
            tasks.start_soon(logins.lend, "shop", 0.0)
            await until(is_taken)
            assert await lender.store.logins.revoke(LOCAL.key, "shop", 2.0)
            await until(lambda: not leases._held)  # pyright: ignore[reportPrivateUsage]
        await until(is_cut)
    assert 200 not in shop.statuses


async def test_a_login_goes_back_without_calls_and_comes_with_the_next_one(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data, idle=0.5) as service, session(service) as browse:
        await browse.text("login_use", login="shop")

        async def is_back() -> bool:
            return (await lender.row()).lease_ends_at == 0.0

        await until(is_back)
        assert (await lender.row()).session == browse.view.id
        assert "Ada" in await browse.text("navigate", url=shop.address + "/")
        assert "this session has it" in await browse.text("login_list")


@pytest.mark.thorough
async def test_each_login_goes_back_after_its_own_seconds(
    lending: Lending, lender: Lender, data: Path
) -> None:
    other = {"sites": ["https://other.test"], "idle": 0.5}
    async with lending(data, idle=3600, other=other) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("login_use", login="other")

        async def is_back() -> bool:
            found = await lender.store.logins.find(LOCAL.key, "other")
            return found is not None and found.lease_ends_at == 0.0

        await until(is_back)
        assert (await lender.row()).lease_ends_at > 0


@pytest.mark.thorough
async def test_what_is_left_of_a_login_is_cleared_by_the_next_call(
    lending: Lending, lender: Lender, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise errors.Error("the browser refuses")

    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        context = browse.connection.session.context
        with monkeypatch.context() as patch:
            patch.setattr("statehold.tools.browser.logins.lending.delete_cookies", fail)
            await browse.text("login_release", login="shop")
            assert (await lender.row()).lease_ends_at == 0.0
            assert await context.cookies() != []
            with pytest.raises(OutcomeUnknown, match="refuses"):
                await browse.text("snapshot")
        await browse.text("snapshot")
        assert await context.cookies() == []


@pytest.mark.thorough
async def test_two_browsers_of_a_session_do_not_take_its_login_from_each_other(
    lender: Lender, shop: LoginSite, data: Path, shell: str
) -> None:
    leases, view = lender.leases(), new_view(LOCAL.key)
    async with (
        running(data / "1", shell, logins=leases) as one,
        running(data / "2", shell, logins=leases) as two,
        opened(one, view) as first,
    ):
        await first.text("login_use", login="shop")
        async with opened(two, view) as second:
            assert "no more with this session" not in await second.text("snapshot")
            with pytest.raises(LoginBusy, match="Another browser of this session"):
                await second.text("login_use", login="shop")
        assert "Ada" in await first.text("navigate", url=shop.address + "/")
        await first.text("login_release", login="shop")
    assert shop.statuses == [200]


@pytest.mark.thorough
async def test_a_frame_of_another_session_loads_while_a_login_changes_hands(
    lending: Lending, data: Path, lab: str
) -> None:
    load = """address => new Promise(done => {
        const frame = document.createElement("iframe");
        frame.onload = () => done(frame.contentDocument?.title ?? "blocked");
        frame.src = address; document.body.append(frame); })"""
    async with lending(data) as service, session(service) as one, session(service) as two:
        for browse in (one, two):
            await browse.text("navigate", url=f"{lab}/counter")
        await two.connection.session.origins.block()
        await one.connection.session.origins.block({lab})
        title = await two.page.title()
        assert await two.page.evaluate(load, f"{lab}/counter") == title != ""
        assert await one.page.evaluate(load, f"{lab}/counter") == "blocked"


async def test_what_changes_while_a_session_has_a_login_is_sealed_at_once(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    async with lending(data) as service, session(service) as browse:
        await browse.text("login_use", login="shop")
        await browse.text("navigate", url=shop.address + "/")
        assert await lender.cookie() == shop.valid
        version = (await lender.row()).version
        await browse.text("snapshot")
        assert (await lender.row()).version == version
        # A change by the page itself is sealed a second later.
        await browse.value("fetch('/api').then(() => { localStorage.token = 'renewed-token' })")

        async def is_sealed() -> bool:
            return "renewed-token" in str(await lender.value())

        await until(is_sealed)
        assert await lender.cookie() == shop.valid
        # So is one during a call, whose cookie is sealed at its end.
        await browse.value("localStorage.token = 'token-of-the-call'")
        await browse.text("navigate", url=shop.address + "/")

        async def is_sealed_later() -> bool:
            return "token-of-the-call" in str(await lender.value())

        await until(is_sealed_later)


@pytest.mark.thorough
async def test_a_login_for_other_principals_is_lent_by_a_rule_only(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path
) -> None:
    ada, ben = (Principal(subject=name).key for name in ("ada", "ben"))
    lend = [{"principals": ["ada"]}]
    async with (
        lending(data, lend=lend) as service,
        opened(service, new_view(ada)) as one,
        opened(service, new_view(ben)) as two,
    ):
        # Ben gets a login of his own, which has no value yet.
        assert "; new" in await two.text("login_use", login="shop")
        assert "Log in" in text_of(await two.call("navigate", url=shop.address + "/"))
        assert "; ok" in await one.text("login_use", login="shop")
        assert "Ada" in await one.text("navigate", url=shop.address + "/")


async def test_a_browser_that_others_started_gets_no_login(
    lender: Lender, data: Path, by_devtools: str
) -> None:
    async with (
        running(data, None, logins=lender.leases(), cdp_endpoint=by_devtools) as service,
        session(service) as browse,
    ):
        with pytest.raises(NotAllowed, match="Statehold starts"):
            await browse.text("login_use", login="shop")
    assert (await lender.row()).session == ""
