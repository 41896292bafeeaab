"""The leases of logins that several processes ask for, without a browser."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import cast

import anyio
import pytest
from support.browsing import new_view
from support.waiting import until

from statehold.sessions.errors import (
    InvalidArgument,
    LoginBusy,
    LoginUnavailable,
    StoreUnavailable,
)
from statehold.sessions.principals.audit_log import AuditEntry, AuditLog
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.services import SessionView
from statehold.sessions.store.base import (
    NEEDS_HUMAN,
    NEW,
    OK,
    RENEWING,
    REVOKED,
    UNCHECKED,
    LoginRecord,
)
from statehold.tools.browser.logins.leases import LEASE_SECONDS, LoginKey, LoginLease, LoginLeases

from .conftest import Lender


@dataclass
class Hand:
    """A clock that a test moves."""

    at: float = 1000.0
    waiting: list[tuple[float, int, anyio.Event]] = field(
        default_factory=list[tuple[float, int, anyio.Event]]
    )

    def now(self) -> float:
        return self.at

    async def sleep_until(self, due_at: float) -> None:
        event = anyio.Event()
        heapq.heappush(self.waiting, (due_at, id(event), event))
        self.move(0.0)
        await event.wait()

    def move(self, seconds: float) -> None:
        self.at += seconds
        while self.waiting and self.waiting[0][0] <= self.at:
            heapq.heappop(self.waiting)[2].set()


def view() -> SessionView:
    return new_view(LOCAL.key)


async def give_back(leases: LoginLeases, lease: LoginLease) -> bool:
    return await leases.give_back(lease, lease.value, is_sure=True, stays=False)


async def test_sessions_get_a_login_in_the_order_in_which_they_asked(lender: Lender) -> None:
    leases, order = lender.leases(), list[int]()
    first = await leases.take(view(), "shop", 0.0)

    async def use(number: int) -> None:
        lease = await leases.take(view(), "shop", 60.0)
        order.append(number)
        await give_back(leases, lease)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(use, number)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(LoginBusy) as busy:
            await leases.take(view(), "shop", 0.0)
        assert busy.value.retry_after is not None
        await give_back(leases, first)
    assert order == list(range(100))
    row = await lender.row()
    assert (row.state, row.session) == (OK, "")


async def test_a_process_that_stood_still_writes_no_more_and_loses_the_login(
    lender: Lender,
) -> None:
    clock = Hand()
    one, two = lender.leases(clock), lender.leases(clock)
    lost = anyio.Event()
    lease = await one.take(view(), "shop", 0.0)
    lease.on_lost = lost.set
    with pytest.raises(LoginBusy):
        await two.take(view(), "shop", 0.0)
    clock.move(LEASE_SECONDS)
    other = await two.take(view(), "shop", 0.0)
    assert other.record.state == UNCHECKED
    assert not await one.write(lease, lease.value)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        await anyio.wait_all_tasks_blocked()
        clock.move(1.0)
        with anyio.fail_after(5):
            await lost.wait()
        tasks.cancel_scope.cancel()
    assert not await give_back(one, lease)
    assert await give_back(two, other)


async def test_a_lease_is_extended_while_its_process_runs(lender: Lender) -> None:
    clock = Hand()
    leases = lender.leases(clock)
    lease = await leases.take(view(), "shop", 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leases.run)
        for _ in range(100):
            await until(lambda: clock.waiting)
            clock.move(1.0)
        await until(lambda: clock.waiting)
        tasks.cancel_scope.cancel()
    assert (await lender.row()).lease_ends_at > clock.now() + LEASE_SECONDS / 2
    assert await leases.write(lease, lease.value)


async def test_a_login_is_cut_before_its_lease_ends_if_the_store_does_not_answer(
    lender: Lender,
) -> None:
    clock = Hand()
    leases = lender.leases(clock)
    lease = await leases.take(view(), "shop", 0.0)
    lost_at: list[float] = []
    lease.on_lost = lambda: lost_at.append(clock.now())
    taken_at = clock.now()
    transactions = lender.store.logins.transactions
    transactions.is_open = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leases.run)
        while not lost_at:
            await until(lambda: clock.waiting or lost_at)
            clock.move(1.0)
        tasks.cancel_scope.cancel()
    transactions.is_open = True
    assert lost_at[0] < taken_at + LEASE_SECONDS


async def test_a_person_who_takes_a_login_back_is_told_to_its_session(lender: Lender) -> None:
    clock = Hand()
    leases = lender.leases(clock)
    lease = await leases.take(view(), "shop", 0.0)
    asked = anyio.Event()
    lease.on_taken_back = asked.set
    assert await lender.store.logins.take_back(LOCAL.key, "shop")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leases.run)
        await until(lambda: clock.waiting)
        clock.move(1.0)
        with anyio.fail_after(5):
            await asked.wait()
        tasks.cancel_scope.cancel()
    assert await give_back(leases, lease)


async def test_an_unusable_login_is_refused_with_its_reason(lender: Lender) -> None:
    leases = lender.leases()
    await lender.store.logins.put(
        replace(await lender.row(), state=NEEDS_HUMAN, reason="the password was changed")
    )
    with pytest.raises(LoginUnavailable, match="needs human: the password was changed"):
        await leases.take(view(), "shop", 10.0)
    with pytest.raises(InvalidArgument, match="Did you mean shop"):
        await leases.take(view(), "shup", 10.0)


async def test_a_login_has_the_reason_of_its_latest_doubt(lender: Lender) -> None:
    leases = lender.leases()
    for reason in ("its site answered 401", "a page of its site led to a login page"):
        lease = await leases.take(view(), "shop", 0.0)
        leases.doubt(lease, reason)
        await give_back(leases, lease)
        row = await lender.row()
        assert (row.state, row.reason, row.checked_at) == (UNCHECKED, reason, None)


def is_due(key: LoginKey, record: LoginRecord | None) -> bool:
    return True


def person(leases: LoginLeases) -> SessionView:
    """A session in which a person is to log in."""
    one = view()
    leases.owners.log_ins[one.id] = "shop"
    return one


@pytest.mark.parametrize("state", [NEEDS_HUMAN, REVOKED, RENEWING, UNCHECKED])
async def test_a_person_gets_a_login_in_any_state_and_a_check_that_is_due_waits(
    lender: Lender, state: str
) -> None:
    await lender.save(state=state, reason="it ended")
    leases = lender.leases(renew=["false"], check={"url": lender.site.address})
    leases.needs_check = is_due
    one = person(leases)
    lease = await leases.take(one, "shop", 0.0)
    # The site may know the browser by a cookie; what was revoked is gone.
    assert bool(lease.value.cookies) == (state != REVOKED)
    assert (await lender.row()).session == one.id
    leases.begin_anew(lease)
    assert await leases.write(lease, await lender.value())
    row = await lender.row()
    assert (row.state, row.reason) == (NEW, "")
    await give_back(leases, lease)
    row = await lender.row()
    assert (row.state, row.reason, row.session) == (UNCHECKED, "", "")


@pytest.mark.parametrize("state", [NEEDS_HUMAN, REVOKED, RENEWING, UNCHECKED, NEW])
async def test_a_login_with_which_no_person_logged_in_has_its_former_state(
    lender: Lender, state: str
) -> None:
    await lender.save(state=state, reason="it ended")
    leases, value = lender.leases(), await lender.value()
    lease = await leases.take(person(leases), "shop", 0.0)
    assert await leases.give_back(lease, value, is_sure=False, stays=True)
    row = await lender.row()
    assert (row.state, row.reason) == (state, "it ended")


async def test_a_person_gets_a_login_before_those_that_wait_for_its_renewal(
    lender: Lender,
) -> None:
    await lender.save(state=RENEWING)
    leases, names = lender.leases(renew=["false"], check={"url": lender.site.address}), list[str]()

    async def use() -> None:
        lease = await leases.take(view(), "shop", 60.0)
        names.append(lease.record.state)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await anyio.wait_all_tasks_blocked()
        lease = await leases.take(person(leases), "shop", 0.0)
        leases.begin_anew(lease)
        await give_back(leases, lease)
    assert names == [UNCHECKED]


async def test_a_person_does_not_log_in_with_the_login_of_the_operator(lender: Lender) -> None:
    entries: list[AuditEntry] = []

    class Log:
        async def admit(self, entry: AuditEntry) -> None:
            entries.append(entry)

    owners = lender.leases(audit=cast("AuditLog", Log()), lend=[{"principals": ["ada"]}]).owners
    ada, bob = (Principal(subject=name).key for name in ("ada", "bob"))
    with pytest.raises(InvalidArgument, match="operator's"):
        await owners.admit_log_in(ada, "shop")
    assert entries == []
    await owners.admit_log_in(bob, "shop")
    assert [(each.operation, each.actor.subject) for each in entries] == [("login.grant", "bob")]


async def test_a_session_does_not_get_back_what_the_rules_forbid_by_now(lender: Lender) -> None:
    ada = new_view(Principal(subject="ada").key)
    former = lender.leases(lend=[{"principals": ["ada"]}])
    lease = await former.take(ada, "shop", 0.0)
    await former.give_back(lease, lease.value, is_sure=True, stays=True)
    assert await lender.leases().retake(ada) == ([], ["shop"])
    moved = lender.leases(lend=[{"principals": ["ada"]}], sites=["https://other.test"])
    [[retaken], _] = await moved.retake(ada)
    assert (retaken.value.cookies, retaken.value.origins) == ([], {})


async def test_a_session_that_does_not_get_all_of_its_logins_again_has_none(
    lender: Lender,
) -> None:
    one = view()
    leases = lender.leases(other={"sites": ["https://other.test"]})
    for name in ("other", "shop"):
        lease = await leases.take(one, name, 0.0)
        assert await leases.give_back(lease, lease.value, is_sure=True, stays=True)
    await lender.save(sealed=b"of another key", session=one.id)
    with pytest.raises(StoreUnavailable):
        await leases.retake(one)
    # The first one is free for the next try.
    await lender.save()
    [[other], lost] = await leases.retake(one)
    assert (other.name, lost) == ("other", [])


async def test_each_grant_refusal_and_return_is_an_entry_of_the_audit_log(lender: Lender) -> None:
    entries: list[AuditEntry] = []

    class Log:
        def note(self, entry: AuditEntry) -> None:
            entries.append(entry)

    leases = lender.leases(audit=cast("AuditLog", Log()))
    one = view()
    lease = await leases.take(one, "shop", 0.0)
    with pytest.raises(LoginBusy):
        await leases.take(view(), "shop", 0.0)
    await give_back(leases, lease)
    assert [(each.operation, each.decision, each.outcome) for each in entries] == [
        ("login.lend", "allow", "ok"),
        ("login.refuse", "deny", "login_busy"),
        ("login.release", "allow", "ok"),
    ]
    assert entries[0].session_id == one.id
    assert entries[0].tool == "shop"
    assert lender.site.valid not in str(entries)
