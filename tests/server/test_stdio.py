"""Lines on stdin that are not messages: a client that waits for an answer gets one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer
from support.gateway_process import JSON, statehold

PING = {"jsonrpc": "2.0", "id": "last", "method": "initialize"}
PARAMS = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}


Answers = Callable[..., list[tuple[Any, JSON]]]


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    """`answers(line, ...)` sends lines and a valid request, closes stdin, and returns the id and error of each answer."""
    config = tmp_path / "statehold.toml"
    config.write_text("")

    def send(*lines: bytes) -> list[tuple[Any, JSON]]:
        last = json.dumps({**PING, "params": PARAMS}).encode()
        ran = subprocess.run(
            [*statehold(), "--config", str(config), "--data", str(tmp_path / "data")],
            input=b"\n".join([*lines, last, b""]),
            capture_output=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        assert b"Traceback" not in ran.stderr
        *refusals, served = [json.loads(line) for line in ran.stdout.splitlines()]
        assert "result" in served
        return [(each["id"], each["error"]) for each in refusals]

    return send


def test_a_request_that_cannot_be_read_is_refused_and_the_next_one_served(answers: Answers) -> None:
    call = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"%b"}}'
    errors = answers(
        call % (b"1", b"\\ud800"),
        call % (b'"two"', b"\xff"),
        call % (b'"\\ud801"', b"ping"),
        b'{"jsonrpc":"2.0","id":4,"method":["tools/call"]}',
        b'{"jsonrpc":"1.0","id":5,"method":"ping"}',
    )
    codes = {number: error["code"] for number, error in errors}
    assert codes == {1: -32700, "two": -32700, "\ud801": -32700, 4: -32600, 5: -32600}
    assert "line 1 column" in dict(errors)[1]["message"]


def test_a_line_that_no_parser_reads_is_answered_with_the_id_null(answers: Answers) -> None:
    """JSON-RPC 2.0, section 5."""
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping",%b}'
    lines = [
        ping % (b'"params":{"n":' + b"1" * 4301 + b"}"),
        ping % (b'"params":{"n":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        ping % b"",
        ping % b'"params":{"n":undefined}',
        b'{"jsonrpc":"2.0","id":"\\x","method":"ping"}',
        b"no JSON",
    ]
    assert [(number, error["code"]) for number, error in answers(*lines)] == [(None, -32700)] * 6


def test_a_batch_and_a_request_whose_id_is_invalid_are_refused_with_the_id_null(
    answers: Answers,
) -> None:
    ping = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}'
    invalid = [ping % number for number in (b"null", b"1.5", b"true", b"[1]")]
    *ids, batch = answers(*invalid, b"[" + ping % b"8" + b"]")
    assert [(number, error["code"]) for number, error in ids] == [(None, -32600)] * 4
    assert all("the id of a request" in error["message"] for _, error in ids)
    assert (batch[0], batch[1]["code"]) == (None, -32600)
    assert "batches" in batch[1]["message"]


def test_notifications_and_answers_that_are_invalid_get_no_answer(answers: Answers) -> None:
    assert not answers(
        b"",
        b'{"jsonrpc":"2.0","method":"notifications/\\ud800"}',
        b'{"jsonrpc":"2.0","id":7,"result":"\\ud800"}',
    )


LATE = """
import anyio, sys
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from statehold.server.stdio import stdio_streams

async def main():
    note = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/x"))
    async with stdio_streams() as stdio:
        if sys.argv[1] == "reads":
            await stdio.read_stream.receive()
            await stdio.read_stream.aclose()
        else:
            for _ in range(100):
                await stdio.write_stream.send(note)
        await stdio.client_closed.wait()

anyio.run(main)
"""


@pytest.mark.parametrize("side", ["reads", "writes"])
def test_a_side_that_was_closed_first_ends_the_streams_without_an_error(
    fork_server: ForkServer, side: str
) -> None:
    """A killed client reads no more, and a server that has ended reads none of the client's remaining lines."""
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n"
    with subprocess.Popen(
        fork_server.command("-c", LATE, side),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdin is not None
        process.stdout.close()
        process.stdin.write(ping * 100 if side == "reads" else b"")
        process.stdin.close()
        errors = process.stderr.read().decode()
        assert process.wait(20) == 0, errors
    assert errors == ""
