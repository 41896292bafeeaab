"""Inspects the memory of a server's node processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio.to_thread
import httpx2
import psutil

INSPECTABLE: Final[Mapping[str, str]] = {"NODE_OPTIONS": "--inspect-port=0"}
"""The environment of a server whose node opens its inspector on request, at a free port."""

CONTEXT_CLASS: Final = "CRBrowserContext"
"""The class of Playwright that holds a context in the process that drives Chromium."""

INSPECT: Final = """
const [port, name] = process.argv.slice(1);
const [target] = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
const inspector = new WebSocket(target.webSocketDebuggerUrl);
const chunks = [];
const request = (method) => new Promise((resolve, reject) => {
  inspector.onerror = reject;
  inspector.onmessage = ({data}) => {
    const message = JSON.parse(data);
    if (message.method === "HeapProfiler.addHeapSnapshotChunk") chunks.push(message.params.chunk);
    if (message.id === 1) resolve();
  };
  inspector.send(JSON.stringify({id: 1, method}));
});
await new Promise((resolve, reject) => Object.assign(inspector, {onopen: resolve, onerror: reject}));
await request("HeapProfiler.collectGarbage");
let count = 0;
if (name) {
  await request("HeapProfiler.takeHeapSnapshot");
  const {snapshot: {meta}, nodes, strings} = JSON.parse(chunks.join(""));
  const [type, label] = ["type", "name"].map((field) => meta.node_fields.indexOf(field));
  for (let at = 0; at < nodes.length; at += meta.node_fields.length)
    if (meta.node_types[type][nodes[at + type]] === "object" && strings[nodes[at + label]] === name) count += 1;
}
inspector.close();
console.log(count);
"""


async def collect_garbage(node: psutil.Process) -> None:
    """Have a node collect its garbage, which it puts off as long as there is memory."""
    await _inspect(node)


async def count_objects(node: psutil.Process, class_name: str) -> int:
    """Return how many objects of a class a node has in memory. It needs much more memory after that."""
    return await _inspect(node, class_name)


async def _inspect(node: psutil.Process, *arguments: str) -> int:
    with anyio.fail_after(30):
        while (port := await anyio.to_thread.run_sync(_inspector_port, node)) is None:
            os.kill(node.pid, signal.SIGUSR1)
            await anyio.sleep(0.05)
    # By the same program: another one may be too old to have a WebSocket.
    command = [node.exe(), "--input-type=module", "--eval", INSPECT, str(port), *arguments]
    return int(await anyio.to_thread.run_sync(_run, command))


def _run(command: list[str]) -> str:
    """Return the output of a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _inspector_port(node: psutil.Process) -> int | None:
    """Return the port of a node's inspector. The host of a browser listens at another port too, for drivers."""
    for connection in node.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN:
            port = connection.laddr.port
            with suppress(httpx2.HTTPError):
                if "webSocketDebuggerUrl" in httpx2.get(f"http://127.0.0.1:{port}/json").text:
                    return port
    return None


__all__ = ["CONTEXT_CLASS", "INSPECTABLE", "collect_garbage", "count_objects"]
