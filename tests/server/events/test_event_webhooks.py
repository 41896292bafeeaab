"""Clients subscribe to events of their sessions by webhook, as ChatGPT does, and get each of them under one id."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from support.event_clients import ADA, Client, by_webhook, clients_of, events_settings
from support.event_receiver import SECRET, EventReceiver, event_receiver
from support.gateway_process import JSON, Running, kill, serving, statehold, toml
from support.selection import matrix
from support.task_client import Gate, task_client
from support.waiting import until

NEW_SECRET = "whsec_" + "QUJD" * 12
CANARY = "canary-7391"


@pytest.fixture
def receiver() -> Generator[EventReceiver]:
    with event_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> JSON:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    return events_settings(tokens)


@pytest.fixture
async def clients(server: Running) -> AsyncGenerator[tuple[Client, Client]]:
    async with clients_of(server) as both:
        yield both


async def test_a_client_subscribes_refreshes_and_unsubscribes(
    clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    ada, _ = clients
    capabilities = (await ada.result("server/discover"))["capabilities"]
    assert capabilities["events"] == {}
    assert capabilities["extensions"]["io.modelcontextprotocol/events"] == {}
    listed = {each["name"]: each for each in (await ada.result("events/list"))["events"]}
    assert listed["session_paused"]["delivery"] == ["webhook", "poll"]
    assert listed["task_done"]["delivery"] == ["webhook"]
    event: JSON = {"name": "session_paused", "arguments": {}}
    granted = await ada.result("events/subscribe", **event, delivery=by_webhook(receiver.url))
    assert receiver.challenges == 1
    first = await ada.open(name=CANARY, metadata={"key": CANARY})
    await ada.pause(first)
    await until(lambda: receiver.delivered)
    [delivered] = receiver.delivered
    assert delivered.is_signed(SECRET)
    assert delivered.headers["webhook-id"] == delivered.event["eventId"]
    assert delivered.headers["x-mcp-subscription-id"] == granted["id"]
    data = {"sessionId": first, "cause": "pause_requested"}
    assert (delivered.event["data"], delivered.event["cursor"]) == (data, None)
    # A refresh with the same secret needs no challenge, and one with another has two signatures.
    again = await ada.result("events/subscribe", **event, delivery=by_webhook(receiver.url))
    assert (again["id"], receiver.challenges) == (granted["id"], 1)
    assert again["refreshBefore"] >= granted["refreshBefore"]
    target = by_webhook(receiver.url, NEW_SECRET)
    assert (await ada.result("events/subscribe", **event, delivery=target))["id"] == granted["id"]
    assert receiver.challenges == 2
    await ada.pause(await ada.open())
    await until(lambda: len(receiver.delivered) == 2)
    assert all(receiver.delivered[1].is_signed(secret) for secret in (SECRET, NEW_SECRET))
    closed: JSON = {"name": "session_closed", "arguments": {"sessionId": first}}
    await ada.result("events/subscribe", **closed, delivery=target)
    for _ in range(2):
        gone = {"mode": "webhook", "url": receiver.url}
        assert (await ada.ask("events/unsubscribe", **event, delivery=gone)).get("result")
    await ada.pause(await ada.open())
    await ada.call("session_close", session_id=first)
    await until(lambda: len(receiver.delivered) == 3)
    assert receiver.delivered[2].event["name"] == "session_closed"
    assert CANARY not in "".join(each.body for each in receiver.delivered)


async def test_a_client_of_the_older_era_subscribes(
    server: Running, receiver: EventReceiver
) -> None:
    headers = {
        "authorization": f"Bearer {ADA}",
        "accept": "application/json, text/event-stream",
    }
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=60) as raw:

        async def ask(method: str, **params: Any) -> JSON:
            body: JSON = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            response = await raw.post("/mcp", json=body)
            raw.headers.setdefault("mcp-session-id", response.headers["mcp-session-id"])
            _, _, data = response.text.rpartition("data: ")
            return json.loads(data)["result"]

        client = {"name": "a test", "version": "1"}
        began = await ask(
            "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client
        )
        assert began["capabilities"]["events"] == {}
        event: JSON = {"name": "session_paused", "delivery": by_webhook(receiver.url)}
        assert (await ask("events/subscribe", **event))["refreshBefore"]
        assert await ask("events/unsubscribe", **event) is not None


async def test_a_server_without_tokens_can_be_polled_only(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": events_settings(tmp_path / "tokens")["services"]}))
    with serving(config, tmp_path / "data") as server:
        async with clients_of(server) as (client, _):
            listed = (await client.result("events/list"))["events"]
            assert {tuple(each["delivery"]) for each in listed} == {("poll",)}
            event: JSON = {"name": "session_paused", "delivery": by_webhook("https://a.example/")}
            assert (await client.error("events/subscribe", **event))[0] == -32014


async def test_the_end_of_a_task_is_an_event(
    clients: tuple[Client, Client], receiver: EventReceiver, tmp_path: Path
) -> None:
    ada, _ = clients
    session, gate = await ada.open(), Gate(tmp_path / "gate")
    target = by_webhook(receiver.url)
    await ada.result("events/subscribe", name="task_done", arguments={}, delivery=target)
    arguments = {"session_id": session, "fifo": str(gate.path)}
    created = await ada.result("tools/call", name="hold", arguments=arguments)
    await gate.release()
    await until(lambda: receiver.delivered)
    data = {"sessionId": session, "taskId": created["taskId"], "status": "ok"}
    assert [each.event["data"] for each in receiver.delivered] == [data]


async def test_words_of_callers_are_in_no_event(
    clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    ada, _ = clients
    session = await ada.open()
    for name in ("human_needed", "state_changed"):
        arguments = {"sessionId": session}
        target = by_webhook(receiver.url)
        await ada.result("events/subscribe", name=name, arguments=arguments, delivery=target)
    await ada.call("session_request_human", session_id=session, reason=CANARY, wait_seconds=0)
    await ada.call("session_request_human", session_id=session, reason=CANARY, wait_seconds=0)
    await ada.call("state_update", session_id=session, values={"value": CANARY})
    await until(lambda: len({*receiver.ids()}) == 2)
    assert {each.event["name"] for each in receiver.delivered} == {"human_needed", "state_changed"}
    assert CANARY not in "".join(each.body for each in receiver.delivered)


async def test_a_session_is_polled_by_those_who_may_see_it(clients: tuple[Client, Client]) -> None:
    ada, ben = clients
    session = await ada.open()
    event: JSON = {"name": "session_paused", "arguments": {"sessionId": session}}
    first = await ada.result("events/poll", **event)
    assert (first["events"], first["hasMore"], first["truncated"]) == ([], False, False)
    await ada.pause(session)
    page = await ada.result("events/poll", **event, cursor=first["cursor"])
    assert [each["data"]["sessionId"] for each in page["events"]] == [session]
    last = await ada.result("events/poll", **event, cursor=page["cursor"])
    assert (last["events"], last["cursor"]) == ([], page["cursor"])
    assert (await ben.error("events/poll", **event))[0] == -32012
    for params, code in (
        ({**event, "name": "another"}, -32011),
        ({**event, "name": JSON()}, -32011),
        ({**event, "name": "task_done"}, -32014),
        ({**event, "cursor": "x"}, -32602),
        ({"name": "session_paused"}, -32602),
        ({**event, "arguments": {"sessionId": 7}}, -32602),
    ):
        assert (await ada.error("events/poll", **params))[0] == code


async def test_a_pinned_address_has_the_events_of_its_session_only(
    server: Running, clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    ada, _ = clients
    session, other = await ada.open(), await ada.open()
    url, target = f"{server.url}/s/{session}/mcp", by_webhook(receiver.url)
    async with task_client(url, headers={"authorization": f"Bearer {ADA}"}) as client:
        pinned = Client(client)
        event: JSON = {"name": "session_paused", "arguments": {"sessionId": session}}
        assert (await pinned.result("events/poll", **event))["events"] == []
        foreign: JSON = {"name": "session_paused", "arguments": {"sessionId": other}}
        assert (await pinned.error("events/poll", **foreign))[0] == -32012
        for event in (foreign, {"name": "session_paused"}):
            assert (await pinned.error("events/subscribe", **event, delivery=target))[0] == -32012
        await ada.result("events/subscribe", **foreign, delivery=target)
        await pinned.result("events/unsubscribe", **foreign, delivery=target)
    await ada.pause(other)
    await until(lambda: receiver.delivered)


async def test_a_wrong_subscription_is_refused(
    clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    ada, ben = clients
    session = await ada.open()
    event: JSON = {"name": "session_paused", "arguments": {"sessionId": session}}
    target = by_webhook(receiver.url)
    for params, code in (
        ({**event, "name": "another", "delivery": target}, -32011),
        ({**event, "delivery": {**target, "mode": "push"}}, -32014),
        ({**event, "delivery": {**target, "secret": "whsec_c2hvcnQ="}}, -32602),
        ({**event, "delivery": {**target, "secret": SECRET.removeprefix("whsec_")}}, -32602),
        ({**event, "delivery": {**target, "url": "ftp://127.0.0.1/"}}, -32602),
        ({**event, "delivery": {**target, "url": "https://me@127.0.0.1/"}}, -32602),
        ({**event, "delivery": {**target, "url": "http://192.0.2.1/"}}, -32015),
        ({**event, "arguments": {"other": 1}, "delivery": target}, -32602),
    ):
        assert (await ada.error("events/subscribe", **params))[0] == code
    assert (await ben.error("events/subscribe", **event, delivery=target))[0] == -32012
    assert receiver.requests == 0
    receiver.answers_challenge = False
    refused = await ada.error("events/subscribe", **event, delivery=target)
    assert refused == (-32015, {"reason": "challenge_failed"})
    clear = by_webhook(receiver.url.replace("http:", "https:"))
    refused = await ada.error("events/subscribe", **event, delivery=clear)
    assert refused == (-32015, {"reason": "tls_error"})
    dead = by_webhook("http://127.0.0.1:9/hook")
    refused = await ada.error("events/subscribe", **event, delivery=dead)
    assert refused == (-32015, {"reason": "connection_refused"})


async def test_equal_subscriptions_of_two_principals_are_two(
    clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    event: JSON = {"name": "session_paused", "arguments": {}, "delivery": by_webhook(receiver.url)}
    ids = [(await each.result("events/subscribe", **event))["id"] for each in clients]
    assert ids[0] != ids[1]
    await clients[1].result("events/unsubscribe", **event)
    sessions = [await each.open() for each in clients]
    for client, session in reversed([*zip(clients, sessions, strict=True)]):
        await client.pause(session)
    await until(lambda: receiver.delivered)
    assert [each.event["data"]["sessionId"] for each in receiver.delivered] == sessions[:1]


async def test_a_share_that_ended_ends_its_subscription(
    clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    ada, ben = clients
    session = await ada.open()
    await ada.call("session_share", session_id=session, subject="ben")
    event: JSON = {"name": "session_paused", "arguments": {"sessionId": session}}
    target = by_webhook(receiver.url)
    await ben.result("events/subscribe", **event, delivery=target)
    await ada.pause(session)
    await until(lambda: receiver.delivered)
    await ada.call("session_unshare", session_id=session, subject="ben")
    assert (await ben.error("events/subscribe", **event, delivery=target))[0] == -32012
    await ada.result("events/subscribe", **event, delivery=target)
    await ada.call("session_resume", session_id=session)
    await ada.pause(session)
    await until(lambda: len(receiver.delivered) == 2)
    ids = [each.headers["x-mcp-subscription-id"] for each in receiver.delivered]
    assert ids[0] != ids[1]


async def test_a_host_that_does_not_answer_delays_no_other(
    clients: tuple[Client, Client], receiver: EventReceiver
) -> None:
    ada, ben = clients
    event: JSON = {"name": "session_paused", "arguments": {}}
    with event_receiver() as silent:
        await ada.result("events/subscribe", **event, delivery=by_webhook(silent.url))
        await ben.result("events/subscribe", **event, delivery=by_webhook(receiver.url))
        silent.released.clear()
        for _ in range(3):
            await ada.pause(await ada.open())
        await until(lambda: silent.requests == 2)
        with anyio.fail_after(4):
            await ben.pause(await ben.open())
            await until(lambda: receiver.delivered)
        # One at a time, since the first has no answer yet.
        assert silent.requests == 2
        gone = {"mode": "webhook", "url": silent.url}
        await ada.result("events/unsubscribe", **event, delivery=gone)


@pytest.mark.parametrize("rounds", matrix(1, 5))
async def test_no_event_is_lost_when_the_server_is_killed(
    tmp_path: Path, receiver: EventReceiver, rounds: int
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(events_settings(tmp_path / "tokens")))
    event: JSON = {"name": "session_paused", "arguments": {}, "delivery": by_webhook(receiver.url)}
    receiver.status = 503
    paused: list[str] = []
    for number in range(rounds):
        with serving(config, data) as server:
            async with clients_of(server) as (ada, _):
                if not number:
                    await ada.result("events/subscribe", **event)
                for _ in range(4):
                    paused.append(await ada.open())
                    await ada.pause(paused[-1])
            kill(server)
    receiver.status = 204
    with serving(config, data):
        await until(lambda: len({*receiver.ids()}) >= len(paused), within=60)
    got = {each.event["eventId"]: each.event["data"]["sessionId"] for each in receiver.delivered}
    assert sorted(got.values()) == sorted(paused)
    assert all(each.is_signed(SECRET) for each in receiver.delivered)


async def test_a_revoked_principal_gets_no_event(tmp_path: Path, receiver: EventReceiver) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml(events_settings(tmp_path / "tokens")))
    event: JSON = {"name": "session_closed", "arguments": {}, "delivery": by_webhook(receiver.url)}
    with serving(config, data) as server:
        async with clients_of(server) as (ada, ben):
            for client in (ada, ben):
                await client.result("events/subscribe", **event)
            await ada.open()
            other = await ben.open()
            flags = ["--config", str(config), "--data", str(data)]
            command = [*statehold(), "principals", "revoke", "ada", *flags]
            done = await anyio.to_thread.run_sync(
                lambda: subprocess.run(command, capture_output=True, text=True, check=False)
            )
            assert done.returncode == 0, done.stderr

            async def is_closed() -> bool:
                return (await ben.call("server_stats"))["sessions"].get("closed") == 1

            await until(is_closed)
            await ben.call("session_close", session_id=other)
        await until(lambda: receiver.delivered)
        assert [each.event["data"]["sessionId"] for each in receiver.delivered] == [other]
