"""Collects the garbage of a server's node process, so that its memory in use can be measured."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

import anyio.to_thread
import psutil

INSPECTABLE: Final[Mapping[str, str]] = {"NODE_OPTIONS": "--inspect-port=0"}
"""The environment of a server whose node opens its inspector on request, at a free port."""

COLLECT: Final = """
const [target] = await (await fetch(`http://127.0.0.1:${process.argv[1]}/json`)).json();
const inspector = new WebSocket(target.webSocketDebuggerUrl);
const done = new Promise((resolve, reject) => { inspector.onmessage = resolve; inspector.onerror = reject; });
inspector.onopen = () => inspector.send(JSON.stringify({id: 1, method: "HeapProfiler.collectGarbage"}));
console.log((await done).data);
inspector.close();
"""


async def collect_garbage(node: psutil.Process) -> None:
    """Have a node collect its garbage, which it puts off as long as there is memory."""
    with anyio.fail_after(20):
        while (port := _port(node)) is None:
            os.kill(node.pid, signal.SIGUSR1)
            await anyio.sleep(0.05)
    # By the same program: another one may be too old to have a WebSocket.
    command = [node.exe(), "--input-type=module", "--eval", COLLECT, str(port)]
    result = await anyio.to_thread.run_sync(_run, command)
    assert result.stdout.strip() == '{"id":1,"result":{}}', result


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def _port(node: psutil.Process) -> int | None:
    listening = [c for c in node.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return listening[0].laddr.port if listening else None


__all__ = ["INSPECTABLE", "collect_garbage"]
