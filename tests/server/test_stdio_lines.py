"""Lines on stdin that are no messages: whoever waits for an answer gets one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front import STATEHOLD

PING = {"jsonrpc": "2.0", "id": "last", "method": "initialize"}
PARAMS = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}


@pytest.fixture
def answers(tmp_path: Path) -> Any:
    """`answers(line, ...)` sends lines and a good request, closes stdin, and returns what came by its id."""
    config = tmp_path / "statehold.toml"
    config.write_text("")

    def sent(*lines: bytes) -> dict[Any, Any]:
        last = json.dumps({**PING, "params": PARAMS}).encode()
        ran = subprocess.run(
            [*STATEHOLD, "--config", str(config), "--data", str(tmp_path / "data")],
            input=b"\n".join([*lines, last, b""]),
            capture_output=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        assert b"Traceback" not in ran.stderr
        found = [json.loads(line) for line in ran.stdout.splitlines()]
        assert "result" in found[-1]
        return {each["id"]: each.get("error") for each in found}

    return sent


def test_a_request_that_cannot_be_read_is_refused_and_the_next_one_served(answers: Any) -> None:
    call = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"%b"}}'
    found = answers(
        call % (b"1", b"\\ud800"),
        call % (b'"two"', b"\xff"),
        call % (b'"\\ud801"', b"ping"),
        b'{"jsonrpc":"2.0","id":4,"method":["tools/call"]}',
        b'{"jsonrpc":"1.0","id":5,"method":"ping"}',
    )
    codes = {number: error["code"] for number, error in found.items() if error}
    assert codes == {1: -32700, "two": -32700, "\ud801": -32700, 4: -32600, 5: -32600}
    assert "line 1 column" in found[1]["message"]


def test_a_request_past_the_limits_of_python_is_refused_by_its_id(answers: Any) -> None:
    """Its id stands before or after what cannot be read, and is not any other one."""
    deep, digits = b"[" * 5000 + b"]" * 5000, b"1" * 4301
    first = b'{"jsonrpc":"2.0","id":%b,"method":"ping","params":{"id":0,"n":%b}}'
    last = b'{"params":{"x":"\\"id\\":0,{","n":[{"id":0},%b]},"method":"ping","\\u0069d" : %b ,"jsonrpc":"2.0"}'
    found = answers(
        first % (b"1", digits),
        last % (digits, b'"t\\u0077o\\n"'),
        first % (b'"three"', deep),
        last % (deep, b"-4"),
        first % (b"5", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    )
    codes = {number: error["code"] for number, error in found.items() if error}
    assert codes == {1: -32700, "two\n": -32700, "three": -32700, -4: -32700, 5: -32700}
    assert "number out of range" in found[1]["message"]
    assert "recursion limit" in found["three"]["message"]


def test_a_request_that_is_no_json_is_refused_by_its_id(answers: Any) -> None:
    found = answers(
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}\r',
        b'{"jsonrpc":"2.0","id":2,"method":"ping",}',
        b'{"jsonrpc":"2.0","id":3,"\\x":0,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":4,"method":"ping","params":{"n":undefined}}',
    )
    codes = {number: error["code"] for number, error in found.items() if error}
    assert codes == dict.fromkeys((1, 2, 3, 4), -32700)


@pytest.mark.parametrize("number", [b"1" * 4301, b"01", b'"\\x"'])
def test_a_request_whose_id_cannot_be_read_is_refused_without_it(
    answers: Any, number: bytes
) -> None:
    line = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % number
    assert answers(line)[None]["code"] == -32700


INVALID_IDS = [b"null", b"1.5", b"true", b"[1]"]


@pytest.mark.parametrize("number", INVALID_IDS)
def test_a_request_whose_id_is_invalid_is_refused_without_it(answers: Any, number: bytes) -> None:
    found = answers(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % number)
    assert found[None]["code"] == -32600
    assert "the id of a request" in found[None]["message"]


def test_a_batch_is_refused(answers: Any) -> None:
    found = answers(b'[{"jsonrpc":"2.0","id":8,"method":"ping"}]')
    assert found[None]["code"] == -32600
    assert "batches" in found[None]["message"]


def test_what_nobody_waits_for_is_not_answered(answers: Any) -> None:
    found = answers(
        b"",
        b"no JSON",
        b'{"jsonrpc":"2.0","id":1,"method":"cut',
        b'{"jsonrpc":"2.0","id":1,"method":"cut}',
        b'{"jsonrpc":"2.0","method":"notifications/\\ud800"}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"id":6,"n":' + b"1" * 4301 + b"}}",
        b'{"jsonrpc":"2.0","id":7,"result":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":7,"result":{"method":' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b"[" * 5000,
    )
    assert list(found) == ["last"]


LATE = """
import anyio, sys
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from statehold.server.stdio import stdio_streams

async def main():
    note = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/x"))
    async with stdio_streams() as stdio:
        if sys.argv[1] == "reads":
            await stdio.read.receive()
            await stdio.read.aclose()
        else:
            for _ in range(100):
                await stdio.write.send(note)
        await stdio.left.wait()

anyio.run(main)
"""


@pytest.mark.parametrize("side", ["reads", "writes"])
def test_a_side_that_was_closed_first_ends_the_streams_without_an_error(side: str) -> None:
    """A killed client reads no more, and a server that has ended takes no more of what the client had written."""
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n"
    with subprocess.Popen(
        [sys.executable, "-c", LATE, side],
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
        told = process.stderr.read().decode()
        assert process.wait(20) == 0, told
    assert told == ""
