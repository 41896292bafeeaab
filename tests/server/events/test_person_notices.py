"""People who have no console open are told why they are needed: by a command, and at an address."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError
from support.counting import Counting
from support.engine import Engine, engine
from support.event_receiver import SECRET, EventReceiver, event_receiver
from support.gateway_process import JSON, Way, kill, opened_session, service, serving, toml
from support.waiting import until

from statehold.client import connect
from statehold.server.config.load import load
from statehold.server.config.sections import NotifySettings
from statehold.server.events.deliverer import (
    FIRST_DELAY,
    LEASE_SECONDS,
    PAUSE_SECONDS,
    Deliverer,
)
from statehold.server.events.notices import (
    KEPT_SECONDS,
    MINUTE_NOTICES,
    RETRY_SECONDS,
    SEND_SECONDS,
    Notices,
)
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.store.events.records import EventDelivery
from statehold.tools.own.control_tools import ConsoleAddress

ASK: JSON = {"wait_seconds": 0}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "operate" / "notices.md"
ADA, BEN = Principal(subject="ada"), Principal(subject="ben")


@pytest.fixture
def receiver() -> Generator[EventReceiver]:
    with event_receiver() as running:
        yield running


def notices_of(node: Engine, *settings: JSON) -> Notices:
    models = [NotifySettings.model_validate(each) for each in settings]
    return Notices(models, node.registry, ConsoleAddress("https://sh.test"))


async def start(node: Engine, *settings: JSON) -> None:
    """Send the notices of some settings."""
    notices = notices_of(node, *settings)
    await notices.subscribe()
    deliverer = Deliverer(node.registry, notices, jitter=lambda low, high: (low + high) / 2)
    node.registry.spawn(deliverer.run)


async def ask(node: Engine, owner: Principal = LOCAL, reason: str = "look", **named: Any) -> str:
    session = await node.create(owner, **named)
    await node.registry.controls.request(owner, session.id, reason)
    return session.id


async def due_times(node: Engine) -> list[float]:
    """Return when the next notice of each of the settings is due."""
    return [at for at in (await node.store.due_hosts()).values() if at is not None]


async def is_empty(node: Engine) -> bool:
    return not await due_times(node)


async def test_each_request_is_told_once_to_the_command_and_to_the_address(
    tmp_path: Path, receiver: EventReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "notices"
    program = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read() + '\\n')"
    url = f"{receiver.url}?key=secret-of-the-hook"
    config = load(
        flags={
            "ephemeral": True,
            "notify": [
                {"command": [sys.executable, "-c", program], "content": True},
                {"url": url, "on": ["human_needed", "login_needed"]},
                {"url": url, "on": ["login_needed"]},
            ],
            "services": {"quick": service("quick")},
        },
        environ={},
    )
    async with connect(config=config) as client:
        session = await client.create("shop")
        for reason in ("type the code", "type the code", "password=hunter22 is wrong"):
            arguments = {"session_id": session.id, "reason": reason, **ASK}
            await client.call_tool("session_request_human", arguments)
            # The same words again are the same request, and others a new one.
            count = 2 if "password" in reason else 1
            await until(lambda count=count: len(receiver.delivered) == count)

            def told(count: int = count) -> bool:
                return file.exists() and len(file.read_text().splitlines()) == count

            await until(told)
    first, second = map(json.loads, file.read_text().splitlines())
    assert first["text"] == "An agent asks for a person: shop: type the code"
    assert (first["event"], first["attempt"]) == ("human_needed", 1)
    assert session.id in first["address"]
    assert "hunter22" not in second["text"]
    posted = receiver.delivered[0].event
    assert posted == {**first, "text": "An agent asks for a person"}
    assert "secret-of-the-hook" not in caplog.text


async def test_a_notice_is_signed_and_has_no_content_unless_the_settings_allow_it(
    receiver: EventReceiver,
) -> None:
    async with engine() as node:
        signed = {"url": receiver.url, "secret": SECRET}
        await start(node, signed, {"url": receiver.url, "content": True})
        session = await ask(node, reason="open <http://evil.test|this>", name="my canary")
        await until(lambda: len(receiver.delivered) == 2)
    plain, full = sorted(receiver.delivered, key=lambda each: len(each.body))
    assert plain.is_signed(SECRET)
    assert plain.headers["webhook-id"] == plain.event["id"] == full.event["id"]
    assert "webhook-signature" not in full.headers
    assert "canary" not in plain.body
    assert "evil" not in plain.body
    assert plain.event["address"] == f"https://sh.test/console#/s/{session}"
    assert full.event["text"].endswith("my canary: open (http://evil.test|this)")


async def test_a_notice_is_sent_again_until_it_is_taken(receiver: EventReceiver) -> None:
    async with engine() as node:
        receiver.status = 500
        await start(node, {"url": receiver.url})
        await ask(node)

        async def is_put_off() -> bool:
            return await due_times(node) == [node.clock.now() + FIRST_DELAY]

        await until(is_put_off)
        receiver.status = 204
        node.clock.advance(FIRST_DELAY)

        async def is_taken() -> bool:
            # The deliverer may have read the time of its pause after the advance.
            node.clock.advance(PAUSE_SECONDS)
            return await is_empty(node)

        await until(is_taken)
    [delivered] = receiver.delivered
    assert delivered.event["attempt"] == 2


async def test_an_answer_without_an_end_is_not_read(receiver: EventReceiver) -> None:
    async with engine() as node:
        receiver.status, receiver.answers_without_end = 200, True
        await start(node, {"url": receiver.url})
        await ask(node)
        with anyio.fail_after(SEND_SECONDS / 2):
            await until(lambda: is_empty(node))


async def test_quiet_hours_end_with_what_still_holds(receiver: EventReceiver) -> None:
    async with engine(Counting()) as node:
        moment = datetime.fromtimestamp(node.clock.now(), UTC).astimezone()
        begin, end = moment - timedelta(minutes=10), moment + timedelta(minutes=5)
        quiet = {"url": receiver.url, "quiet": f"{begin:%H:%M}-{end:%H:%M}"}
        await start(node, quiet)
        waiting, answered = await ask(node), await ask(node)

        async def is_postponed() -> bool:
            return [at for at in await due_times(node) if at > node.clock.now() + 60] != []

        await until(is_postponed)
        await node.registry.controls.take(LOCAL, answered, "a person")
        assert receiver.requests == 0
        node.clock.advance(300)
        await until(lambda: is_empty(node))
    assert [waiting in each.body for each in receiver.delivered] == [True]


async def test_many_requests_of_one_owner_leave_room_for_others(receiver: EventReceiver) -> None:
    async with engine() as node:
        await start(node, {"url": receiver.url})
        theirs = {await ask(node, ADA) for _ in range(MINUTE_NOTICES + 3)}
        own = await ask(node, BEN)
        await until(lambda: len(receiver.delivered) == MINUTE_NOTICES + 1)
        assert any(own in each.body for each in receiver.delivered)
        node.clock.advance(60)
        await until(lambda: len(receiver.delivered) == len(theirs) + 1)
        await until(lambda: is_empty(node))


async def test_many_notices_wait_once_and_leave_room_for_another_reason(
    receiver: EventReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine() as node:
        waits: list[float | None] = []
        retry = node.store.retry_delivery

        async def count_retry(delivery: EventDelivery, due_at: float | None, attempts: int) -> None:
            await retry(delivery, due_at, attempts)
            waits.append(due_at)

        monkeypatch.setattr(node.store, "retry_delivery", count_retry)
        await start(node, {"url": receiver.url})
        for _ in range(3 * MINUTE_NOTICES):
            await ask(node, ADA)
        await until(lambda: len(waits) == 2 * MINUTE_NOTICES)
        await node.store.add_limit(ADA.key, "sessions", node.clock.now())
        await until(lambda: len(receiver.delivered) == MINUTE_NOTICES + 1)
        for minute in (2, 3):
            node.clock.advance(60)
            await until(lambda n=minute: len(receiver.delivered) == n * MINUTE_NOTICES + 1)
        # None has waited twice; the delivery of the limit is kept for a day.
        assert len(waits) == 2 * MINUTE_NOTICES + 1


async def test_a_limit_is_told_once_a_day_by_all_processes(receiver: EventReceiver) -> None:
    async with engine() as node:
        await start(node, {"url": receiver.url, "on": ["limit_near"]})
        await node.store.add_limit(ADA.key, "sessions", node.clock.now())
        day_ends_at = node.clock.now() + KEPT_SECONDS

        async def is_kept() -> bool:
            return await due_times(node) == [pytest.approx(day_ends_at, abs=0.01)]

        await until(is_kept)
        # As the next process, which does not remember what this one has sent.
        await start(node, {"url": receiver.url, "on": ["limit_near"]})
        await node.store.add_limit(ADA.key, "sessions", node.clock.now())
        await node.store.add_limit(BEN.key, "sessions", node.clock.now())
        await until(lambda: len(receiver.delivered) == 2)
        await until(is_kept)
        node.clock.advance(KEPT_SECONDS + 1)
        await until(lambda: is_empty(node))
    assert len(receiver.delivered) == 2


async def test_an_old_notice_and_one_of_other_settings_are_not_sent(
    receiver: EventReceiver,
) -> None:
    async with engine() as node:
        receiver.status = 500
        first: JSON = {"url": receiver.url, "on": ["limit_near"]}
        await start(node, first)
        other = {"url": receiver.url + "/other"}
        await notices_of(node, first, other).subscribe()
        await node.store.add_limit(ADA.key, "sessions", node.clock.now())
        await until(lambda: receiver.requests)

        async def is_put_off() -> bool:
            return node.clock.now() + FIRST_DELAY in await due_times(node)

        await until(is_put_off)
        receiver.status = 204
        node.clock.advance(KEPT_SECONDS)

        async def has_other_only() -> bool:
            # The deliverer may have read the time of its pause after the advance.
            node.clock.advance(1)
            return len(await due_times(node)) == 1

        await until(has_other_only)
        assert (receiver.requests, receiver.delivered) == (1, [])


async def test_notices_that_wait_are_sent_by_corrected_settings(receiver: EventReceiver) -> None:
    async with engine() as node:
        wrong = {"url": "http://127.0.0.1:9", "on": ["human_needed", "limit_near"]}
        await notices_of(node, wrong).subscribe()
        session = await ask(node)
        await node.store.add_limit(ADA.key, "sessions", node.clock.now())
        await start(node, {"url": receiver.url, "on": ["human_needed"]})
        await until(lambda: is_empty(node))
    assert [session in each.body for each in receiver.delivered] == [True]


async def test_subscriptions_are_stored_once_the_store_answers_again(
    receiver: EventReceiver,
) -> None:
    async with engine() as node:
        notices = notices_of(node, {"url": receiver.url})
        node.registry.spawn(notices.keep_subscribed, False)

        async def is_subscribed() -> bool:
            node.clock.advance(RETRY_SECONDS / 10)
            return await node.store.due_hosts() != {}

        await until(is_subscribed)


@pytest.mark.thorough
async def test_a_request_reaches_its_person_after_the_server_was_killed(
    tmp_path: Path, receiver: EventReceiver
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    settings: JSON = {
        "notify": [{"url": receiver.url, "secret": SECRET, "on": ["human_needed"]}],
        "services": {"quick": service("quick")},
    }
    config.write_text(toml(settings))
    receiver.released.clear()
    with serving(config, data) as running:
        way = Way("http", "modern", config, data, url=running.url)
        async with way.connect() as client:
            session = await opened_session(client)
            arguments = {"session_id": session, "reason": "look", **ASK}
            await client.call_tool("session_request_human", arguments)
            await until(lambda: receiver.requests == 1)
        kill(running)
    receiver.delivered.clear()
    receiver.released.set()
    await until(lambda: receiver.delivered)
    receiver.delivered.clear()
    with serving(config, data):
        with anyio.fail_after(3 * LEASE_SECONDS):
            await until(lambda: receiver.delivered, within=3 * LEASE_SECONDS)
    [delivered] = receiver.delivered
    assert session in delivered.event["address"]
    # It names itself as one that may have come before.
    assert delivered.event["attempt"] == 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"command": ["x"], "url": "https://a.test"},
        {"url": "ftp://a.test"},
        {"url": "https://a.test", "secret": "short"},
        {"url": "https://a.test", "secret": "whsec_" + 33 * "A"},
        {"command": ["x"], "on": []},
        {"command": ["x"], "on": ["everything"]},
        {"command": ["x"], "quiet": "22-7"},
        {"command": ["x"], "quiet": "22:00-24:00"},
        {"command": ["x"], "quiet": "22:00-22:00"},
    ],
)
def test_wrong_settings_are_refused(settings: JSON) -> None:
    with pytest.raises(ValidationError):
        NotifySettings.model_validate(settings)


def test_the_settings_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    environ = {"NOTIFY_URL": "https://hooks.test", "NOTIFY_SECRET": SECRET}
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        path = tmp_path / "statehold.toml"
        path.write_text(block)
        assert load(config=path, environ=environ).notify
