"""Events are queued in the transaction of their causes, and wait for one process at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete
from store_making import NODE, Sessions, entry

from statehold.sessions.lifecycle import Status
from statehold.sessions.principals.rules import RevocationRecord
from statehold.sessions.records import JournalKind, ReceiptRecord, StateRecord
from statehold.sessions.store import Write, schema
from statehold.sessions.store.base import (
    NEEDS_HUMAN,
    OK,
    ApprovalRecord,
    ApprovalState,
    LoginRecord,
    PinRecord,
)
from statehold.sessions.store.events import outbox
from statehold.sessions.store.events.records import OPERATOR, REASONS, EventDelivery, Subscription
from statehold.sessions.store.sql import SQLStore

ADA, BEN = ":ada", ":ben"
HOST = "hooks.example:443"
NOW = 10.0


def subscription(name: str, *, owner: str = ADA, **values: Any) -> Subscription:
    session_id = values.get("session_id", "")
    defaults: dict[str, Any] = {
        "id": f"sub_{owner}{session_id}{name}",
        "owner": owner,
        "session_id": session_id,
        "name": name,
        "url": "https://hooks.example/hook",
        "host": HOST,
        "secret": "whsec_first",
        "created_at": 1.0,
        "expires_at": 1000.0,
    }
    return Subscription(**{**defaults, **values})


async def subscribe(store: SQLStore, *names: str, **values: Any) -> None:
    for name in names:
        assert await store.put_subscription(subscription(name, **values), most=100)


async def claim(
    store: SQLStore, now: float = NOW, most: int = 100, after: EventDelivery | None = None
) -> list[EventDelivery]:
    last = "" if after is None else after.subscription.id
    return await store.claim_deliveries(HOST, now, now + 15.0, most, last)


async def queued(store: SQLStore) -> dict[str, Any]:
    """Claim everything, and return the data of each event by its id."""
    bodies = [json.loads(each.body) for each in await claim(store)]
    return {body["eventId"]: (body["name"], body["data"]) for body in bodies}


def transition(session_id: str, seq: int, target: Status, *, epoch: int = 1) -> Any:
    request = {"code": "T08", "event": "pause_requested", "to": target.value, "cause": "a secret"}
    kind = JournalKind.TRANSITION
    return entry(session_id, seq, epoch=epoch, kind=kind, tool=None, request=request)


def receipt(session_id: str, operation_id: str, status: str, ended_at: float | None) -> Any:
    return ReceiptRecord(
        session_id=session_id,
        operation_id=operation_id,
        digest="d",
        status=status,
        seq=1,
        epoch=1,
        started_at=2.0,
        ended_at=ended_at,
        result={"text": "a secret"},
        expires_at=1e6 if operation_id.startswith("task-") else None,
    )


async def test_events_are_queued_for_those_who_subscribed(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await sessions.make("sh_b", owner=BEN)
    names = ("task_done", "session_paused", "state_changed", "human_needed", "download_finished")
    await subscribe(store, *names, expires_at=1e13)
    await subscribe(store, "session_paused", owner=BEN, session_id="sh_a", expires_at=1e13)
    lease = {"driver": "requested", "reason": "a secret"}
    await store.write(
        Write(
            "sh_a",
            NODE,
            1,
            session={"status": Status.PAUSED},
            journal=[
                transition("sh_a", 2, Status.PAUSED),
                entry("sh_a", 3, kind=JournalKind.CONTROL, status="requested", request=lease),
                entry("sh_a", 4, ended_at=3.0, facts={"files": ["secret.pdf"]}),
                entry("sh_a", 5, ended_at=3.0, facts={"values": {"/kind": "files"}}),
            ],
            receipts=[
                receipt("sh_a", "task-1", "ok", 3.0),
                receipt("sh_a", "task-2", "started", None),
                receipt("sh_a", "another", "ok", 3.0),
            ],
            state=StateRecord(session_id="sh_a", version=7, value={"key": "a secret"}),
            at=4.0,
        )
    )
    await store.write(Write("sh_b", NODE, 1, journal=[transition("sh_b", 2, Status.PAUSED)]))
    deliveries = await claim(store, now=1e12)
    assert not any("secret" in each.body for each in deliveries)
    of_ben = [each.event_id for each in deliveries if each.subscription.owner == BEN]
    assert of_ben == ["evt_sh_a_2"]
    bodies = [json.loads(each.body) for each in deliveries if each.subscription.owner == ADA]
    assert {body["eventId"]: body["data"] for body in bodies} == {
        "evt_sh_a_2": {"sessionId": "sh_a", "cause": "pause_requested"},
        "evt_sh_a_human-2000": {"sessionId": "sh_a", "requestId": "human-2000"},
        "evt_sh_a_4": {"sessionId": "sh_a", "seq": 4, "files": 1},
        "evt_sh_a_task-1": {"sessionId": "sh_a", "taskId": "sh_a.task-1", "status": "ok"},
        "evt_sh_a_v7": {"sessionId": "sh_a", "version": 7},
    }
    times = {body["eventId"]: body["timestamp"] for body in bodies}
    assert times["evt_sh_a_2"] == "1970-01-01T00:00:02.000Z"
    assert times["evt_sh_a_v7"] == "1970-01-01T00:00:04.000Z"


async def test_a_write_that_is_refused_and_an_import_queue_nothing(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA, status=Status.CREATING)
    await sessions.make("sh_b", owner=ADA)
    await subscribe(store, "session_closed")
    await store.write(Write("sh_a", NODE, 1, journal=[transition("sh_a", 1, Status.CLOSED)]))
    await subscribe(store, "session_paused", created_at=5.0)
    await store.write(Write("sh_b", NODE, 1, journal=[transition("sh_b", 1, Status.PAUSED)]))
    store.append(transition("sh_b", 2, Status.CLOSED, epoch=2), NODE)
    await store.flush()
    assert await queued(store) == {}


async def test_the_sessions_of_a_dead_node_queue_their_events(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await store.write(Write("sh_a", NODE, 1, receipts=[receipt("sh_a", "task-1", "started", None)]))
    await subscribe(store, "task_done", "session_paused")
    waiting = store.events_queued
    await store.declare_dead(NODE)
    assert await store.adopt([], NOW) == ["sh_a"]
    assert waiting.is_set()
    assert await queued(store) == {
        "evt_sh_a_1": ("session_paused", {"sessionId": "sh_a", "cause": "adopted"}),
        "evt_sh_a_task-1": (
            "task_done",
            {"sessionId": "sh_a", "taskId": "sh_a.task-1", "status": "outcome_unknown"},
        ),
    }


async def pause(store: SQLStore, *session_ids: str, seq: int = 1) -> None:
    for session_id in session_ids:
        row = transition(session_id, seq, Status.PAUSED)
        await store.write(Write(session_id, NODE, 1, journal=[row]))


async def test_a_claimed_delivery_is_due_again_when_its_lease_ends(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    assert await store.due_hosts() == {}
    await subscribe(store, "session_paused")
    assert await store.due_hosts() == {HOST: None}
    await pause(store, "sh_a")
    assert await store.due_hosts() == {HOST: 2.0}
    [first] = await claim(store)
    assert (first.attempts, await claim(store)) == (1, [])
    assert await store.due_hosts() == {HOST: NOW + 15.0}
    [second] = await claim(store, now=NOW + 15.0)
    assert (second.event_id, second.attempts) == (first.event_id, 2)
    # Given up, and tried again after a refresh.
    await store.retry_delivery(second, None, 2)
    assert await claim(store, now=900.0) == []
    await subscribe(store, "session_paused", created_at=100.0, secret="whsec_second")
    [third] = await claim(store, now=100.0)
    # Each of them may have come.
    assert third.attempts == 3
    assert third.subscription.secret == "whsec_second"
    assert third.subscription.old_secret == "whsec_first"
    assert third.subscription.old_secret_ends_at > 100.0
    assert "whsec" not in repr(third)
    await store.finish_delivery(third.subscription.id, third.event_id)
    assert await claim(store, now=900.0) == []
    assert await store.due_hosts() == {HOST: None}


async def test_a_subscription_ends_with_its_time_its_principal_and_its_session(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await subscribe(store, "session_paused", session_id="sh_a", expires_at=5.0)
    await subscribe(store, "session_paused")
    await subscribe(store, "session_paused", owner=BEN, session_id="sh_a")
    await pause(store, "sh_a")
    assert {each.subscription.id for each in await claim(store)} == {
        "sub_:adasession_paused",
        "sub_:bensh_asession_paused",
    }
    await store.access.revoke(
        RevocationRecord(owner=ADA, revoked_at=NOW, revoked_by="a test", keeps_sessions=True)
    )
    await pause(store, "sh_a", seq=2)
    late = await claim(store, now=500.0)
    assert {each.subscription.owner for each in late} == {BEN}
    await store.write(Write("sh_a", NODE, 1, session={"status": Status.CLOSED}))
    assert await store.purge("sh_a")
    assert await claim(store, now=900.0) == []
    assert await store.due_hosts() == {}


async def test_an_expired_subscription_gets_no_event_and_is_deleted(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await subscribe(store, "session_paused", expires_at=5.0)
    await pause(store, "sh_a")
    # Also one that was queued earlier is not sent.
    assert await claim(store) == []
    assert await store.due_hosts() == {HOST: None}
    await store.write(Write("sh_a", NODE, 1, journal=[late_transition("sh_a", 2)]))
    assert await store.due_hosts() == {HOST: None}
    await store.delete_expired_subscriptions(NOW)
    assert await store.due_hosts() == {}


async def test_a_sweep_deletes_the_deliveries_of_a_subscription_that_went_meanwhile(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await subscribe(store, "session_paused", "session_closed")
    await pause(store, "sh_a")
    gone = schema.subscription.c.name == "session_paused"
    await store.transactions.write(
        lambda connection: connection.execute(delete(schema.subscription).where(gone))
    )
    assert await store.due_hosts() == {HOST: 2.0}
    await store.delete_expired_subscriptions(NOW)
    assert await store.due_hosts() == {HOST: None}


def late_transition(session_id: str, seq: int) -> Any:
    return transition(session_id, seq, Status.PAUSED).model_copy(update={"started_at": NOW})


async def test_a_claim_takes_from_each_subscription_in_turn(
    store: SQLStore, sessions: Sessions
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await sessions.make("sh_b", owner=BEN)
    for owner in (ADA, BEN):
        await subscribe(store, "session_paused", owner=owner)
    for seq in range(1, 5):
        await pause(store, "sh_a", seq=seq)
    await store.write(Write("sh_b", NODE, 1, journal=[late_transition("sh_b", 1)]))
    first = await claim(store, most=2)
    assert [each.subscription.owner for each in first] == [ADA, BEN]
    assert [each.event_id for each in await claim(store, most=2)] == ["evt_sh_a_2", "evt_sh_a_3"]
    await pause(store, "sh_b", seq=2)
    assert [each.subscription.owner for each in await claim(store, most=1, after=first[0])] == [BEN]


async def test_events_beyond_the_limit_of_a_subscription_are_dropped(
    store: SQLStore, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_QUEUED", 2)
    await sessions.make("sh_a", owner=ADA)
    await subscribe(store, "session_paused")
    await subscribe(store, "session_closed")
    for seq in range(1, 4):
        await pause(store, "sh_a", seq=seq)
    await store.write(Write("sh_a", NODE, 1, journal=[transition("sh_a", 4, Status.CLOSED)]))
    found = [each.event_id for each in await claim(store)]
    assert sorted(found) == ["evt_sh_a_1", "evt_sh_a_2", "evt_sh_a_4"]


async def test_a_principal_has_a_bounded_number_of_subscriptions(store: SQLStore) -> None:
    names = ("session_paused", "session_closed")
    assert [await store.put_subscription(subscription(n), most=1) for n in names] == [True, False]
    assert await store.put_subscription(subscription("session_closed", owner=BEN), most=1)
    # A refresh is none, and one that has ended does not count.
    assert await store.put_subscription(subscription("session_paused"), most=1)
    late = subscription("session_closed", created_at=1000.0, expires_at=2000.0)
    assert await store.put_subscription(late, most=1)


@pytest.mark.parametrize("most", [1, 100])
async def test_a_poll_goes_on_behind_its_cursor(
    store: SQLStore, sessions: Sessions, most: int
) -> None:
    await sessions.make("sh_a", owner=ADA)
    await pause(store, "sh_a", seq=2)
    name = "session_paused"
    page = await store.events("sh_a", name, None, most)
    assert (page["events"], page["cursor"]) == ([], "2")
    for seq in (4, 6):
        await store.write(Write("sh_a", NODE, 1, journal=[entry("sh_a", seq - 1)]))
        await pause(store, "sh_a", seq=seq)
    ids: list[str] = []
    for _ in range(2):
        page = await store.events("sh_a", name, int(page["cursor"]), most)
        ids += [event["eventId"] for event in page["events"]]
    assert ids == ["evt_sh_a_4", "evt_sh_a_6"]
    assert (page["cursor"], page["hasMore"], page["truncated"]) == ("6", False, False)
    compacted = entry("sh_a", 7, kind=JournalKind.COMPACTED, tool=None, request={})
    await store.write(Write("sh_a", NODE, 1, journal=[compacted]))
    assert (await store.events("sh_a", name, 6, most))["truncated"]


async def test_events_of_a_service_are_queued_with_the_position_behind_them(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = subscription("feed.note", source="at 0")
    assert await store.put_subscription(first, most=1)
    assert await store.polled_subscriptions(NOW) == [first.id]
    documents = [
        {"eventId": f"evt_{number}", "name": "feed.note", "data": 1} for number in (1, 2, 2)
    ]
    assert await store.add_polled(first, "at 2", documents, NOW)
    # Another process has read the same events, under other ids.
    others = [{"eventId": "evt_3", "name": "feed.note", "data": 1}]
    assert not await store.add_polled(first, "at 2", others, NOW)
    second = await store.find_subscription(first.id)
    assert second is not None
    assert second.source == "at 2"
    monkeypatch.setattr(outbox, "MAX_QUEUED", 2)
    assert not await store.add_polled(second, "at 3", others, NOW)
    assert {*await queued(store)} == {"evt_1", "evt_2"}
    # A refresh begins at no other position.
    assert await store.put_subscription(first, most=1)
    assert await store.find_subscription(first.id) == second


async def names_of(store: SQLStore) -> list[str]:
    """Claim everything, and return the sorted names of the events."""
    return sorted(name for name, _ in (await queued(store)).values())


async def test_the_operator_gets_the_reasons_of_all_owners(
    store: SQLStore, sessions: Sessions
) -> None:
    await subscribe(store, *REASONS, owner=OPERATOR, expires_at=1e13)
    await subscribe(store, "session_lost", owner=BEN, expires_at=1e13)
    await sessions.make("sh_a", owner=ADA)
    lease = {"driver": "requested", "reason": "a secret"}
    asks = entry("sh_a", 2, kind=JournalKind.CONTROL, status="requested", request=lease)
    lost = transition("sh_a", 3, Status.ERROR)
    await store.write(Write("sh_a", NODE, 1, journal=[asks, lost]))
    assert await names_of(store) == ["human_needed", "session_lost"]


async def test_an_approval_is_an_event_when_it_is_first_asked_for(
    store: SQLStore, sessions: Sessions
) -> None:
    await subscribe(store, "approval_needed", owner=OPERATOR, expires_at=1e13)
    await subscribe(store, "approval_needed", expires_at=1e13)
    await sessions.make("sh_a", owner=ADA)
    wanted = ApprovalRecord(
        id="apr_1",
        owner=ADA,
        session_id="sh_a",
        service="bank",
        tool="send",
        digest="d",
        standing="all",
        arguments='{"to": "a secret"}',
        state=ApprovalState.PENDING.value,
        created_at=2.0,
        ends_at=300.0,
    )
    for _ in range(2):
        assert await store.access.request_approval(wanted) is not None
    deliveries = await claim(store)
    assert sorted(each.subscription.owner for each in deliveries) == [ADA, OPERATOR]
    assert len({each.event_id for each in deliveries}) == 1
    assert "secret" not in deliveries[0].body


async def test_a_login_is_told_when_it_begins_to_need_its_person(store: SQLStore) -> None:
    await subscribe(store, "login_needed", owner=OPERATOR, expires_at=1e13)
    new = LoginRecord(
        owner=ADA,
        name="shop",
        kind="browser",
        site="https://shop.test",
        issuer="",
        state=OK,
        since=1.0,
        sealed=b"first",
    )
    held = await store.logins.take(new, "sh_a", 2.0, 70.0)
    assert held is not None
    held = replace(held, state=NEEDS_HUMAN, since=3.0)
    assert await store.logins.write_value(held, b"second")
    held = replace(held, version=held.version + 1)
    assert await store.logins.give_back(held)
    [(name, data)] = (await queued(store)).values()
    assert (name, data) == ("login_needed", {"owner": ADA, "login": "shop"})


async def test_changed_tools_are_one_notice_until_they_change_again(store: SQLStore) -> None:
    await subscribe(store, "tool_changed", owner=OPERATOR, expires_at=1e13)
    first = [PinRecord("notes", "a", "tool", name, "1", "{}", 2.0) for name in ("one", "two")]
    await store.access.fix_pins(first)
    assert await names_of(store) == []
    for digest in ("2", "2", "3"):
        await store.access.fix_pins([replace(each, digest=digest, since=3.0) for each in first])
    found = await queued(store)
    assert len(found) == 2
    data = {"service": "notes", "config": "a", "count": 2, "names": ["one", "two"]}
    assert list(found.values()) == [("tool_changed", data)] * 2
    await store.access.fix_pins([replace(each, since=4.0) for each in first])
    assert await names_of(store) == []


async def test_an_owner_is_near_its_limit_once(store: SQLStore, sessions: Sessions) -> None:
    await subscribe(store, "limit_near", owner=OPERATOR, expires_at=1e13)
    for number in range(8):
        await sessions.make(f"sh_{number}", owner=ADA, per_owner=10)
    assert await names_of(store) == []
    for number in (8, 9):
        await sessions.make(f"sh_{number}", owner=ADA, per_owner=10)
    [(name, data)] = (await queued(store)).values()
    assert (name, data) == ("limit_near", {"owner": ADA, "limit": "sessions"})
