"""The tool list of a server on stdio, by the bytes of the pipe: no client takes part in the time or in the text."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..gateways import log_file
from ..processes import stop

_INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmarks", "version": "1"},
}


class Listing(NamedTuple):
    seconds: float
    """From the start of the process to the answer of `tools/list`."""
    text: str
    """The result of `tools/list` as JSON."""


def list_tools(command: Sequence[str], folder: Path) -> Listing:
    """Start a server, ask it for its tools and stop it."""
    with log_file(folder) as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            _send(process, {"id": 1, "method": "initialize", "params": _INITIALIZE})
            _result(process, 1)
            _send(process, {"method": "notifications/initialized"})
            _send(process, {"id": 2, "method": "tools/list", "params": {}})
            result = _result(process, 2)
            seconds = time.perf_counter() - began
        finally:
            stop(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
    return Listing(seconds, json.dumps(result, ensure_ascii=False, separators=(",", ":")))


def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def _result(process: subprocess.Popen[bytes], number: int) -> Any:
    """Read messages until the answer of a request; the end of the output is an error."""
    assert process.stdout is not None
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            return message["result"]
    raise RuntimeError(f"{process.args!r} ended without an answer")
