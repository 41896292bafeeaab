"""Checks of a login that nobody has, and its renewal by a command."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from contextlib import suppress
from typing import Any

import anyio
import pytest
from pydantic import ValidationError
from support.browsing import new_view, opened
from support.login_site import LoginSite
from support.selection import matrix
from support.waiting import until

from statehold.sessions.clock import ManualClock
from statehold.sessions.errors import LoginBusy, LoginUnavailable
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.services import SessionView
from statehold.sessions.store.base import NEEDS_HUMAN, OK, RENEWING, UNCHECKED
from statehold.tools.browser import connection
from statehold.tools.browser.logins import checks as login_checks
from statehold.tools.browser.logins.checks import AGAIN_SECONDS, NEXT_RENEWAL_SECONDS, NO_VERDICT
from statehold.tools.browser.logins.leases import (
    LEASE_SECONDS,
    LOOK_SECONDS,
    LoginLease,
    LoginLeases,
)
from statehold.tools.browser.process import browser_process
from statehold.tools.logins.config import BrowserLoginConfig

from .conftest import FAIL, FAIL_LATE, LOG_IN, Checks, Lender, Log, session


def view() -> SessionView:
    return new_view(LOCAL.key)


async def give_back(leases: LoginLeases, lease: LoginLease, *, stays: bool = False) -> None:
    assert await leases.give_back(lease, lease.value, is_sure=True, stays=stays)


@pytest.mark.thorough
async def test_a_login_that_its_site_ended_is_found_within_the_time_between_checks(
    checks: Checks, shop: LoginSite
) -> None:
    clock, log = ManualClock(), Log()
    async with checks.run(clock, log=log, text="Ada") as (service, leases):
        await until(lambda: log.outcomes)
        await checks.until_state(OK)
        row = await checks.lender.row()
        checked_at = clock.now()
        assert row.checked_at == checked_at
        assert await checks.lender.cookie() == shop.valid
        clock.advance(random.Random(3).uniform(0.0, 890.0))
        ended_at = clock.now()
        shop.log_in()
        clock.advance(checked_at + 900.0 - clock.now())
        await checks.until_state(NEEDS_HUMAN)
        assert (await checks.lender.row()).since <= ended_at + 900.0
        with pytest.raises(LoginUnavailable, match=r"needs human: the page .* answered 401"):
            await leases.take(view(), "shop", 5.0)
        async with opened(service, view()) as browse:
            assert "needs_human (the page" in await browse.text("login_list")
    assert log.outcomes == [("login.check", OK), ("login.check", NEEDS_HUMAN)]


async def test_no_browser_starts_while_no_check_is_due(checks: Checks, shop: LoginSite) -> None:
    clock = ManualClock()
    await checks.lender.save(checked_at=clock.now())
    async with checks.run(clock) as (service, leases):
        await until(lambda: clock.waiting)
        assert service._pool is not None  # pyright: ignore[reportPrivateUsage]
        assert service._pool.statistics()["browsers"] == 0  # pyright: ignore[reportPrivateUsage]
        lease = await leases.take(view(), "shop", 0.0)
        await give_back(leases, lease)
    assert shop.statuses == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("/account", "", "led to another one"),
        ("/", "Sign out", "does not show the text"),
        ("/forbidden", "", "answered 403"),
    ],
)
async def test_the_page_of_a_check_tells_why_nobody_is_signed_in(
    checks: Checks, shop: LoginSite, path: str, text: str, reason: str
) -> None:
    if path == "/account":
        shop.log_in()
    async with checks.run(path=path, text=text):
        await checks.until_state(NEEDS_HUMAN)
    assert reason in (await checks.lender.row()).reason


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["/broken", ":1"])
async def test_a_site_that_fails_is_no_verdict(
    checks: Checks, shop: LoginSite, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {}
    if path == ":1":
        # Nothing listens there.
        settings["sites"] = [shop.address, "http://127.0.0.1:9999"]
        settings["check"] = {"url": "http://127.0.0.1:9999/"}
        path = "/"
    clock, log, versions = ManualClock(), Log(), list[int]()
    async with (
        checks.run(clock, path=path, log=log, **settings) as (_, leases),
        checks.run(clock, path=path, log=log, data="other", **settings) as (_, others),
    ):
        for each in (leases, others, leases):
            lease = await each.take(view(), "shop", 0.0)
            assert (lease.record.state, lease.record.reason) == (OK, NO_VERDICT)
            versions.append(lease.record.version)
            await give_back(each, lease)
        # It was taken and given back between, and no process had it for another check.
        assert versions == [versions[0], versions[0] + 2, versions[0] + 4]
        tried_at = clock.now()
        clock.advance(AGAIN_SECONDS)
        await until(lambda: _is_tried_after(checks, tried_at))
    assert log.outcomes == []
    assert shop.valid not in caplog.text


async def _is_tried_after(checks: Checks, at: float) -> bool:
    return (await checks.lender.row()).checked_at == at + AGAIN_SECONDS


async def test_a_login_that_was_given_back_in_doubt_is_checked_before_it_is_lent_again(
    checks: Checks, shop: LoginSite
) -> None:
    clock = ManualClock()
    await checks.lender.save(checked_at=clock.now())
    async with checks.run(clock) as (_, leases):
        for _ in range(2):
            lease = await leases.take(view(), "shop", 0.0)
            assert await leases.give_back(lease, None, is_sure=False, stays=False)
            lease = await leases.take(view(), "shop", 0.0)
            assert (lease.record.state, lease.record.reason) == (OK, "")
            await give_back(leases, lease)
        assert len(shop.statuses) == 2
        # One whose process ended without giving it back is no less in doubt.
        await checks.lender.save(checked_at=clock.now(), lease_ends_at=clock.now())
        lease = await leases.take(view(), "shop", 0.0)
        assert lease.record.state == OK
        assert len(shop.statuses) == 3


async def test_a_login_is_renewed_once_for_all_that_wait_in_all_processes(
    checks: Checks, shop: LoginSite, caplog: pytest.LogCaptureFixture
) -> None:
    shop.log_in()
    log, states = Log(), list[str]()
    renew = checks.command(LOG_IN)

    async def use(leases: LoginLeases) -> None:
        lease = await leases.take(view(), "shop", 120.0)
        states.append(lease.record.state)
        assert lease.value.cookies[0]["value"] == shop.valid
        await give_back(leases, lease)

    async with (
        checks.run(log=log, renew=renew) as (_, one),
        checks.run(log=log, renew=renew, data="other") as (_, two),
        anyio.create_task_group() as tasks,
    ):
        for _ in range(25):
            tasks.start_soon(use, one)
            tasks.start_soon(use, two)
    assert checks.runs == 1
    assert states == [OK] * 50
    assert log.outcomes == [
        ("login.check", RENEWING),
        ("login.renew", "started"),
        ("login.renew", "ok"),
        ("login.check", OK),
    ]
    assert shop.valid not in caplog.text + str(log.entries)
    assert (await checks.lender.row()).renewals == ""


@pytest.mark.parametrize("state", matrix(RENEWING, OK))
async def test_a_principal_does_not_get_the_login_of_the_operator_by_its_command(
    checks: Checks, shop: LoginSite, state: str
) -> None:
    alice, log = Principal(issuer="https://tokens.test", subject="alice").key, Log()
    shop.log_in()
    await checks.lender.save(owner=alice, state=state)
    await checks.lender.store.logins.revoke(LOCAL.key, "shop", 1.0)
    shop.log_in()
    async with checks.run(log=log, renew=checks.command(LOG_IN)) as (_, leases):
        with pytest.raises(LoginUnavailable, match="needs human"):
            await leases.take(new_view(alice), "shop", 20.0)
    assert checks.runs == 0
    assert [outcome for _, outcome in log.outcomes] == [NEEDS_HUMAN]


@pytest.mark.thorough
async def test_a_person_logs_in_in_place_of_the_command(checks: Checks, shop: LoginSite) -> None:
    shop.log_in()
    one = view()
    async with (
        checks.run(ManualClock(), renew=checks.command(FAIL)) as (service, leases),
        opened(service, one) as browse,
    ):
        await until(lambda: checks.runs)
        await checks.until_state(RENEWING)
        leases.owners.log_ins[one.id] = "shop"
        await browse.text("login_use", login="shop", wait_seconds=10)
        await browse.connection.begin_human_control()
        await browse.text("navigate", url=shop.address + "/in")
        await browse.connection.end_human_control()
        await browse.text("login_release", login="shop")
        assert (await checks.lender.row()).renewals
        assert "; ok" in await browse.text("login_use", login="shop")
    assert checks.runs == 1


async def test_after_three_renewals_that_failed_no_other_one_is_tried(
    checks: Checks, shop: LoginSite, caplog: pytest.LogCaptureFixture
) -> None:
    shop.log_in()
    clock, log, renew = ManualClock(), Log(), checks.command(FAIL)

    async def wait_next(number: int) -> None:
        await until(lambda: checks.runs == number)
        await checks.until_state(RENEWING if number < 3 else NEEDS_HUMAN)

    async with checks.run(clock, log=log, renew=renew) as (_, leases):
        await wait_next(1)
        with pytest.raises(LoginBusy):
            await leases.take(view(), "shop", 0.0)
        clock.advance(NEXT_RENEWAL_SECONDS)
        await wait_next(2)
    clock.advance(NEXT_RENEWAL_SECONDS)
    async with checks.run(clock, log=log, renew=renew, data="other") as (_, leases):
        await wait_next(3)
        with pytest.raises(LoginUnavailable, match="ended with exit code 3, after 3 renewals"):
            await leases.take(view(), "shop", 0.0)
        clock.advance(3600.0)
        assert await checks.lender.store.logins.request_check(LOCAL.key, "shop", "browser")
        clock.advance(10.0)
        await until(lambda: log.outcomes[-1] == ("login.check", NEEDS_HUMAN))
        await checks.until_state(NEEDS_HUMAN)
    assert checks.runs == 3
    assert "the password" not in caplog.text + str(log.entries) + (await checks.lender.row()).reason


@pytest.mark.thorough
async def test_a_renewal_that_takes_long_is_followed_by_the_same_pause(
    checks: Checks, shop: LoginSite
) -> None:
    clock = ManualClock()
    await checks.lender.save(state=RENEWING)

    async def is_extended() -> bool:
        # The look that extends it may have begun at the time before.
        clock.advance(LOOK_SECONDS)
        return (await checks.lender.row()).lease_ends_at > first_end + LEASE_SECONDS

    async with checks.run(clock, renew=checks.command(FAIL_LATE)):
        await until(lambda: checks.runs)
        first_end = (await checks.lender.row()).lease_ends_at
        await until(is_extended)
        shop.hanging.set()
        await checks.until_state(RENEWING)
        assert (await checks.lender.row()).renewals == f"{clock.now():.0f}"
        clock.advance(NEXT_RENEWAL_SECONDS - 1.0)
        await until(lambda: clock.waiting)
        assert checks.runs == 1
        clock.advance(1.0)
        await until(lambda: checks.runs == 2)


@pytest.mark.thorough
async def test_a_browser_that_hangs_does_not_keep_a_check_going(
    checks: Checks,
    shop: LoginSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(login_checks, "USE_SECONDS", 5.0)
    for module, name in (
        (connection, "CLOSE"),
        (browser_process, "DOUBT"),
        (browser_process, "CHECK"),
    ):
        monkeypatch.setattr(module, f"{name}_SECONDS", 0.5)
    clock = ManualClock()
    async with checks.run(clock, path="/hang") as (service, leases), session(service) as browse:
        await until(lambda: shop.visits)
        pid = browse.connection._process.pid  # pyright: ignore[reportPrivateUsage]
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: "shop was not checked: TimeoutError" in caplog.text, within=60.0)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        clock.advance(LEASE_SECONDS + 1.0)
        # The next one finds nothing out, either.
        lease = await leases.take(view(), "shop", 60.0)
        assert (lease.record.state, lease.record.reason) == (UNCHECKED, NO_VERDICT)


async def test_an_output_that_is_no_login_is_a_failure_without_its_text(
    checks: Checks, shop: LoginSite
) -> None:
    shop.log_in()
    other = json.dumps(
        {"cookies": [], "origins": [{"origin": "https://other.test", "localStorage": []}]}
    )
    renew = [sys.executable, "-c", f"print({other!r})"]
    async with checks.run(ManualClock(), renew=renew):
        await checks.until_state(RENEWING)
        await until(lambda: _has_reason(checks, "the output of `renew` has nothing of its sites"))


async def _has_reason(checks: Checks, reason: str) -> bool:
    return (await checks.lender.row()).reason == reason


async def test_a_login_that_a_session_has_is_not_checked(checks: Checks, shop: LoginSite) -> None:
    clock = ManualClock()
    await checks.lender.save(checked_at=clock.now())
    async with checks.run(clock, every=10.0) as (_, leases):
        lease = await leases.take(view(), "shop", 0.0)
        for _ in range(4):
            await until(lambda: clock.waiting >= 2)
            clock.advance(5.0)
        await until(lambda: clock.waiting >= 2)
        assert shop.statuses == []
        assert leases.holds(lease)
        await give_back(leases, lease)
        clock.advance(5.0)
        await until(lambda: shop.statuses)
        await checks.until_state(OK)


@pytest.mark.thorough
async def test_a_call_does_not_wait_for_a_slow_check_and_a_later_one_takes_the_login_again(
    checks: Checks, shop: LoginSite
) -> None:
    clock = ManualClock()
    await checks.lender.save(checked_at=clock.now())

    async def is_checked(expected: bool) -> bool:
        row = await checks.lender.row()
        return bool(row.in_check) is expected and bool(row.lease_ends_at) is expected

    async with (
        checks.run(clock, path="/hang", every=10.0, idle=30.0) as (service, _),
        session(service) as browse,
    ):
        await browse.text("login_use", login="shop")
        await until(lambda: clock.waiting >= 3)
        clock.advance(31.0)
        await until(lambda: is_checked(False))
        clock.advance(5.0)
        await until(lambda: is_checked(True))
        with anyio.fail_after(10):
            assert "it is being checked" in await browse.text("snapshot")
        shop.hanging.set()
        await until(lambda: is_checked(False))
        clock.advance(5.0)
        assert "Ada" in await browse.text("navigate", url=shop.address + "/")


async def test_a_session_that_pauses_finds_its_login_again_after_a_check(lender: Lender) -> None:
    leases, paused = lender.leases(), view()
    await give_back(leases, await leases.take(paused, "shop", 0.0), stays=True)
    checked = await leases.take_to_check(view(), "shop")
    assert checked is not None
    found: list[LoginLease] = []

    async def resume() -> None:
        retaken, lost = await leases.retake(paused)
        assert lost == []
        found.extend(retaken)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume)
        await until(lambda: _is_being_checked(leases))
        assert await leases.give_back(checked, None, is_sure=True, stays=True)
    assert [lease.name for lease in found] == ["shop"]


async def _is_being_checked(leases: LoginLeases) -> bool:
    return "it is being checked" in (await leases.describe(view()))[0]


@pytest.mark.parametrize(
    ("path", "reason"),
    matrix(
        ("/", "its site answered 401"),
        ("/account", "a page of its site led to a login page"),
        ("/forbidden", None),
    ),
)
async def test_a_sign_in_the_answers_of_a_site_makes_a_login_unchecked(
    checks: Checks, shop: LoginSite, path: str, reason: str | None
) -> None:
    async with checks.run(check=None) as (service, _), session(service) as browse:
        await browse.text("login_use", login="shop")
        if reason is not None:
            shop.log_in()
        await browse.call("navigate", url=shop.address + path)
        await browse.text("login_release", login="shop")
    row = await checks.lender.row()
    assert (row.state, row.reason) == ((UNCHECKED, reason) if reason else (OK, ""))


async def test_a_sign_has_the_login_checked_before_another_session_gets_it(
    checks: Checks, shop: LoginSite
) -> None:
    async with (
        checks.run(ManualClock()) as (service, _),
        session(service) as one,
        session(service) as two,
    ):
        await one.text("login_use", login="shop")
        shop.log_in()
        await one.call("navigate", url=shop.address + "/")
        await one.text("login_release", login="shop")
        with pytest.raises(LoginUnavailable, match="answered 401"):
            await two.text("login_use", login="shop")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"check": {"url": "https://other.test/"}}, "no page of its `sites`"),
        ({"renew": ["log-in"]}, "needs a `check`"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], problem: str) -> None:
    login = {"kind": "browser", "sites": ["https://shop.test"], **settings}
    with pytest.raises(ValidationError, match=problem):
        BrowserLoginConfig.model_validate(login)
