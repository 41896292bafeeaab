"""Clients get the events of services as they get ours: by polls, and by webhook under one id each."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.event_clients import ADA, BEN, Client, by_webhook, clients_of, events_settings
from support.event_receiver import EventReceiver, event_receiver
from support.fork_server import ForkServer
from support.gateway_process import JSON, Running, kill, serving, toml
from support.listening import run_listening
from support.selection import matrix
from support.task_client import task_client
from support.waiting import until

PROGRAM = str(Path(__file__).parents[2] / "upstreams" / "event_server.py")
# In the older era, the SDK declares no extensions.
HTTP = ("--transport", "http", "--era", "modern")


class Upstream:
    """The file of events of an upstream, and its log."""

    def __init__(self, folder: Path) -> None:
        self.file, self.log = folder / "events", folder / "log"
        for path in (self.file, self.log):
            path.touch()
        self.options = ("--events", str(self.file), "--log", str(self.log))

    def emit(self, *lines: str) -> None:
        with self.file.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def requests(self, method: str) -> list[Any]:
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line[0] == method]


@pytest.fixture
def receiver() -> Generator[EventReceiver]:
    with event_receiver() as running:
        yield running


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


Configure = Callable[..., Path]


@pytest.fixture
def configure(tmp_path: Path, fork_server: ForkServer, upstream: Upstream) -> Generator[Configure]:
    """Write a configuration with the service `feed`, over stdio or HTTP, and return its path."""
    with ExitStack() as stack:

        def write(
            transport: str = "stdio", *options: str, is_only: bool = False, **settings: Any
        ) -> Path:
            options = (*upstream.options, *options)
            feed: JSON = fork_server.service(PROGRAM, *options, **settings)
            if transport == "http":
                command = fork_server.command(PROGRAM, *options, *HTTP)
                port = stack.enter_context(run_listening(command))
                feed = {"url": f"http://127.0.0.1:{port}/mcp", **settings}
            document = events_settings(tmp_path / "tokens")
            if is_only:
                document["services"].clear()
            document["services"]["feed"] = feed
            path = tmp_path / "statehold.toml"
            path.write_text(toml(document))
            return path

        yield write


@pytest.fixture
async def clients(
    configure: Configure, tmp_path: Path
) -> AsyncGenerator[tuple[Running, Client, Client]]:
    with serving(configure(), tmp_path / "data") as server:
        async with clients_of(server) as (ada, ben):
            yield server, ada, ben


def texts(events: list[JSON]) -> list[str]:
    return [event["data"]["text"] for event in events]


def received(receiver: EventReceiver) -> list[JSON]:
    return [each.event for each in receiver.delivered]


async def test_events_of_services_are_listed_and_polled(
    clients: tuple[Running, Client, Client], upstream: Upstream
) -> None:
    _, ada, ben = clients
    listed = {each["name"]: each for each in (await ada.result("events/list"))["events"]}
    assert "feed.pushed" not in listed
    assert listed["feed.note"]["delivery"] == ["webhook", "poll"]
    schema = listed["feed.note"]["inputSchema"]
    assert (set(schema["properties"]), schema["required"]) == (
        {"topic", "sessionId"},
        ["sessionId"],
    )
    session, other = await ada.open(), await ben.open()
    note: JSON = {"name": "feed.note", "arguments": {"sessionId": session, "topic": "a"}}
    upstream.emit("a0")
    first = await ada.result("events/poll", **note)
    assert first["events"] == []
    upstream.emit("a1", "b1", "a2")
    page = await ada.result("events/poll", **note, cursor=first["cursor"], maxEvents=2)
    assert (texts(page["events"]), page["hasMore"]) == (["a1"], True)
    last = await ada.result("events/poll", **note, cursor=page["cursor"])
    assert (texts(last["events"]), last["hasMore"]) == (["a2"], False)
    assert last["events"][0]["name"] == "feed.note"
    # The upstream counts the events of both of its names from 0.
    closed = {**note, "name": "feed.session_closed"}
    same = await ada.result("events/poll", **closed, cursor=page["cursor"])
    assert same["events"][0]["eventId"] != last["events"][0]["eventId"]
    refused: list[tuple[Client, JSON, int]] = [
        (ben, note, -32012),
        (ada, {**note, "arguments": {"sessionId": other}}, -32012),
        (ada, {**note, "arguments": {}}, -32602),
        (ada, {**note, "arguments": {"sessionId": session, "x": "y" * 20_000}}, -32602),
        (ada, {**note, "cursor": "99"}, -32602),
        (ada, {**note, "name": "feed.pushed"}, -32011),
        (ada, {**note, "name": "note"}, -32011),
    ]
    for client, params, code in refused:
        assert (await client.error("events/poll", **params))[0] == code
    assert not upstream.requests("subscribe")


async def test_a_subscriber_gets_the_events_of_its_session(
    clients: tuple[Running, Client, Client], upstream: Upstream, receiver: EventReceiver
) -> None:
    _, ada, ben = clients
    session = await ada.open()
    note: JSON = {"name": "feed.note", "arguments": {"sessionId": session}}
    target = by_webhook(receiver.url)
    assert (await ben.error("events/subscribe", **note, delivery=target))[0] == -32012
    assert receiver.requests == 0
    upstream.emit("before")
    granted = await ada.result("events/subscribe", **note, delivery=target)
    assert (granted["cursor"], granted["truncated"]) == ("1", False)
    upstream.emit("one", "two")
    await until(lambda: len(receiver.delivered) == 2)
    assert sorted(texts(received(receiver))) == ["one", "two"]
    event, delivered = received(receiver)[0], receiver.delivered[0]
    assert (event["name"], delivered.headers["webhook-id"]) == ("feed.note", event["eventId"])
    assert delivered.headers["x-mcp-subscription-id"] == granted["id"]
    # A refresh goes on where it is, and one with a cursor of an event begins behind it once it has ended.
    await ada.result("events/subscribe", **note, delivery=target)
    gone = {"mode": "webhook", "url": receiver.url}
    await ada.result("events/unsubscribe", **note, delivery=gone)
    again = await ada.result("events/subscribe", **note, delivery=target, cursor="2")
    assert again["cursor"] == "2"
    await until(lambda: len(receiver.delivered) == 3)
    assert receiver.ids()[2] in receiver.ids()[:2]
    # Without a subscription, nothing is polled.
    await ada.result("events/unsubscribe", **note, delivery=gone)
    upstream.emit("three")
    with pytest.raises(TimeoutError):
        await until(lambda: len(receiver.delivered) > 3, within=2.5)
    assert not upstream.requests("subscribe")


@pytest.mark.parametrize("transport", matrix("stdio", "http"))
async def test_no_event_of_a_service_is_lost_or_told_twice_when_the_server_is_killed(
    configure: Configure,
    tmp_path: Path,
    upstream: Upstream,
    receiver: EventReceiver,
    transport: str,
) -> None:
    # An event that was read twice would have two ids.
    config, data = configure(transport, "--fresh-ids"), tmp_path / "data"
    lines = [f"{number}" for number in range(60)]
    with serving(config, data) as server:
        async with clients_of(server) as (ada, _):
            session = await ada.open()
            note: JSON = {"name": "feed.note", "arguments": {"sessionId": session}}
            await ada.result("events/subscribe", **note, delivery=by_webhook(receiver.url))
            receiver.status = 503
            upstream.emit(*lines[:20])
            await until(lambda: receiver.requests > 1)
        kill(server)
    upstream.emit(*lines[20:40])
    with serving(config, data) as server:
        before = len(upstream.requests("poll"))
        await until(lambda: len(upstream.requests("poll")) > before)
        kill(server)
    upstream.emit(*lines[40:])
    receiver.status = 204
    with serving(config, data) as server:
        await until(lambda: len({*texts(received(receiver))}) == len(lines), within=60)
    ids = {event["eventId"]: event["data"]["text"] for event in received(receiver)}
    assert sorted(ids.values()) == sorted(lines)


async def test_a_clean_restart_goes_on_and_a_requested_pause_does_not(
    configure: Configure, tmp_path: Path, upstream: Upstream, receiver: EventReceiver
) -> None:
    config, data = configure(pause="release"), tmp_path / "data"
    with serving(config, data) as server:
        async with clients_of(server) as (ada, _):
            session = await ada.open()
            note: JSON = {"name": "feed.note", "arguments": {"sessionId": session}}
            await ada.result("events/subscribe", **note, delivery=by_webhook(receiver.url))
    upstream.emit("one")
    with serving(config, data) as server:
        await until(lambda: len(receiver.delivered) == 1)
        async with clients_of(server) as (ada, _):
            await ada.pause(session)
            upstream.emit("two")
            with pytest.raises(TimeoutError):
                await until(lambda: len(receiver.delivered) > 1, within=2.5)
            info = await ada.call("session_info", session_id=session)
            assert info["status"] == "paused"
            await ada.call("session_resume", session_id=session)
            await until(lambda: len(receiver.delivered) == 2)


async def test_a_cursor_that_the_service_has_forgotten_is_a_gap(
    clients: tuple[Running, Client, Client], upstream: Upstream, receiver: EventReceiver
) -> None:
    _, ada, _ = clients
    session = await ada.open()
    note: JSON = {"name": "feed.note", "arguments": {"sessionId": session}}
    upstream.emit("one", "two")
    await ada.result("events/subscribe", **note, delivery=by_webhook(receiver.url))
    upstream.file.write_text("")
    await until(lambda: ["poll", "note", "0"] in upstream.requests("poll"))
    upstream.emit("three", "four")
    await until(lambda: len(receiver.delivered) == 2)
    told = {event["data"]["text"]: event.get("truncated") for event in received(receiver)}
    assert told == {"three": True, "four": None}


async def test_a_pinned_address_has_the_names_of_its_only_service(
    configure: Configure, tmp_path: Path, upstream: Upstream, receiver: EventReceiver
) -> None:
    with serving(configure(is_only=True), tmp_path / "data") as server:
        ada, ben = ({"authorization": f"Bearer {token}"} for token in (ADA, BEN))
        url = f"{server.url}/s/work/mcp"
        async with task_client(url, headers=ada) as one, task_client(url, headers=ben) as two:
            first, second = Client(one), Client(two)
            listed = {each["name"]: each for each in (await first.result("events/list"))["events"]}
            assert set(listed["note"]["inputSchema"]["properties"]) == {"topic"}
            # Ours goes before that of the service.
            assert set(listed["session_closed"]["inputSchema"]["properties"]) == {"sessionId"}
            note: JSON = {"name": "note", "delivery": by_webhook(receiver.url)}
            ids = [
                (await each.result("events/subscribe", **note))["id"] for each in (first, second)
            ]
            assert ids[0] != ids[1]
            upstream.emit("one")
            await until(lambda: len(receiver.delivered) == 2)
            assert {each.headers["x-mcp-subscription-id"] for each in receiver.delivered} == {*ids}
            assert len({*receiver.ids()}) == 2


@pytest.mark.thorough
async def test_a_service_that_was_away_is_polled_again(
    tmp_path: Path, fork_server: ForkServer, upstream: Upstream, receiver: EventReceiver
) -> None:
    command = fork_server.command(PROGRAM, *upstream.options, *HTTP)
    with ExitStack() as stack:
        with run_listening(command) as port:
            document = events_settings(tmp_path / "tokens")
            document["services"] = {"feed": {"url": f"http://127.0.0.1:{port}/mcp"}}
            config = tmp_path / "statehold.toml"
            config.write_text(toml(document))
            server = stack.enter_context(serving(config, tmp_path / "data"))
            async with clients_of(server) as (ada, _):
                session = await ada.open()
                note: JSON = {"name": "feed.note", "arguments": {"sessionId": session}}
                await ada.result("events/subscribe", **note, delivery=by_webhook(receiver.url))
        upstream.emit("one")
        with pytest.raises(TimeoutError):
            await until(lambda: receiver.delivered, within=3)
        stack.enter_context(run_listening([*command, "--port", str(port)]))
        await until(lambda: receiver.delivered, within=60)
    assert texts(received(receiver)) == ["one"]
