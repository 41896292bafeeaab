"""Plain calls over stdio: the order of their messages, clients that do not read, request ids, and cancellation."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.gateway_process import JSON, service, toml
from support.piped import HELLO, Pipes, piped, tool_call

ENVELOPE: JSON = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LINES = 4000
LINE_BYTES = 1 << 14
"""Together 64 MiB, of which the client can write a part only."""
BLOCKED_SECONDS = 3.0

Connect = Callable[..., AbstractAsyncContextManager[tuple[Pipes, str]]]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """`connect(meta)` opens a connection in the era of this `_meta`, and a session."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"counter": service("counter")}}))

    @asynccontextmanager
    async def open_connection(meta: JSON) -> AsyncGenerator[tuple[Pipes, str]]:
        listing: JSON = {"id": 0, "method": "tools/list", "params": {"_meta": meta}}
        hello = [listing] if meta else HELLO
        async with piped(config, tmp_path / "data", hello=hello) as pipes:
            await pipes.send(call(1, "session_create", meta))
            created = (await pipes.answer(1))["result"]["structuredContent"]
            yield pipes, created["session_id"]

    return open_connection


def call(number: Any, tool: str, meta: JSON, **arguments: Any) -> JSON:
    message = tool_call(number, tool, **arguments)
    return {**message, "params": {**message["params"], "_meta": meta}}


@pytest.mark.parametrize("envelope", [{}, ENVELOPE], ids=["legacy", "modern"])
async def test_progress_arrives_in_order_and_before_its_result(
    connect: Connect, envelope: JSON
) -> None:
    numbers, steps = range(10, 50), 20
    async with connect(envelope) as (pipes, session):
        for number in numbers:
            # Together more than the pipe holds, and nothing is read meanwhile.
            meta, wait = {**envelope, "progressToken": number}, {"seconds": 0, "steps": steps}
            await pipes.send(call(number, "slow", meta, session_id=session, **wait))
        progress: dict[int, list[int]] = {number: [] for number in numbers}
        unanswered = set(numbers)
        while unanswered:
            message = await pipes.line()
            if message.get("method") == "notifications/progress":
                params = message["params"]
                assert params["progressToken"] in unanswered
                progress[params["progressToken"]].append(params["progress"])
            else:
                assert message["result"]["content"][0]["text"] == "done"
                unanswered.remove(message["id"])
    assert all(values == list(range(1, steps + 1)) for values in progress.values())


@pytest.mark.parametrize("first", [1, LINES], ids=["own ids", "one id"])
async def test_a_client_that_does_not_read_cannot_write_without_end(
    connect: Connect, first: int
) -> None:
    """All that it has written is answered once it reads."""
    async with connect({}) as (pipes, session):
        ids: list[int] = []
        is_blocked = False
        while not is_blocked:
            assert len(ids) < LINES
            ids.append(max(first, len(ids) + 1))
            with anyio.move_on_after(BLOCKED_SECONDS) as scope:
                arguments = {"session_id": session, "kib": 16, "padding": "x" * LINE_BYTES}
                await pipes.send(call(ids[-1], "big", {}, **arguments))
            is_blocked = scope.cancelled_caught
        answered = [(await pipes.line())["id"] for _ in ids]
        assert sorted(answered) == sorted(ids)


async def test_each_id_is_answered_as_it_was_sent(connect: Connect) -> None:
    async with connect({}) as (pipes, session):
        ids = ["a", "", "7", 7, 7, -1, 2**63, 2**70]
        for number in ids:
            await pipes.send(call(number, "get", {}, session_id=session))
        answers = [await pipes.line() for _ in ids]
        assert sorted(repr(answer["id"]) for answer in answers) == sorted(map(repr, ids))
        assert [answer for answer in answers if "result" not in answer] == []
        for number in (1.5, 1e300, True, None):
            await pipes.send(call(number, "get", {}, session_id=session))
            refusal = await pipes.line()
            assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
        for text in (b"NaN", b"[" * 5000, b'"\\ud800"'):
            line = json.dumps(call(8, "get", {}, session_id="?")).encode()
            await pipes.stdin.send(line.replace(b'"?"', text) + b"\n")
            assert "error" in (answer := await pipes.line()) or answer["result"]["isError"]


@pytest.mark.parametrize("envelope", [{}, ENVELOPE], ids=["legacy", "modern"])
async def test_integers_beyond_64_bits_pass_unchanged(connect: Connect, envelope: JSON) -> None:
    async with connect(envelope) as (pipes, session):
        await pipes.send(call(2, "echo", envelope, session_id=session, n=2**70))
        result = (await pipes.answer(2))["result"]
        assert result["structuredContent"]["arguments"]["n"] == 2**70


@pytest.mark.parametrize("envelope", [{}, ENVELOPE], ids=["legacy", "modern"])
async def test_a_cancelled_call_is_not_answered_and_the_next_one_runs(
    connect: Connect, envelope: JSON
) -> None:
    async with connect(envelope) as (pipes, session):
        meta = {**envelope, "progressToken": 2}
        wait = {"session_id": session, "seconds": 600, "steps": 60_000}
        await pipes.send(call(2, "slow", meta, **wait))
        assert (await pipes.line())["method"] == "notifications/progress"
        # An id in another form is the same one, as in the SDK.
        await pipes.send({"method": "notifications/cancelled", "params": {"requestId": "2"}})
        await pipes.send(call(3, "get", envelope, session_id=session))
        await pipes.answer(3)
        await pipes.stdin.aclose()
        assert all(message.get("id") != 2 for message in await pipes.rest())
