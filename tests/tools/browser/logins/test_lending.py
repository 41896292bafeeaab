"""A login that is lent to one session at a time: handed over whole, also while pages go on using it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsing import again, opened
from support.login_site import LoginSite

from statehold.sessions.errors import LoginBusy
from statehold.sessions.store.base import OK, UNCHECKED

from .conftest import Lender, Lending, session

ROUNDS = 10


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


@pytest.mark.parametrize("path", ["/poll", "/worker"])
async def test_a_login_with_reuse_detection_survives_hand_overs_between_polling_pages(
    lending: Lending, lender: Lender, shop: LoginSite, data: Path, path: str
) -> None:
    async with lending(data) as service, session(service) as one, session(service) as two:
        for number in range(ROUNDS):
            for browse in (one, two):
                await browse.text("login_use", login="shop")
                if number == 0:
                    await browse.text("navigate", url=shop.address + path)
                await shop.wait_answers(3)
                await browse.text("login_release", login="shop")
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
