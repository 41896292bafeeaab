"""Real children of a real keeper, and the connections that several nodes have to it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from statehold.tools.processes.child_process import ChildProcess, KeeperHandle, ProcessLimits
from statehold.tools.processes.keeper import (
    KeeperClient,
    KeptIdentity,
)
from statehold.tools.processes.ledger import Ledger
from statehold.tools.processes.sandbox import ProcessSandbox

from .process_exit import until_gone

LIMITS = ProcessLimits(eof_grace=1.0, term_grace=0.5, kill_grace=2.0)
LINGER = 30.0
NOTE = """
import json, os, sys, time
def note(**params):
    print(json.dumps({"jsonrpc": "2.0", "method": "note", "params": params}), flush=True)
"""


class Nodes:
    """Connections to the keeper of one folder, as several nodes have them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._clients: list[KeeperClient] = []
        self.children: list[ChildProcess] = []

    def client(self, linger: float = LINGER, **bounds: float) -> KeeperClient:
        self._clients.append(KeeperClient(self.folder, linger, **bounds))
        return self._clients[-1]

    async def aclose(self) -> None:
        """End all children, close all connections, and end the keeper."""
        pids = [client.pid for client in self._clients if client.pid is not None]
        for child in self.children:
            await child.aclose()
        for client in self._clients:
            await client.aclose()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await until_gone(pid)


def handle(client: KeeperClient, epoch: int = 1) -> KeeperHandle:
    return KeeperHandle(client, KeptIdentity("sh_a", "service", 1, epoch))


async def start(
    nodes: Nodes,
    code: str,
    *,
    client: KeeperClient | None = None,
    epoch: int = 1,
    kept: KeeperHandle | None = None,
    sandbox: ProcessSandbox | None = None,
) -> ChildProcess:
    child = await ChildProcess.start(
        [sys.executable, "-c", NOTE + code],
        service="service",
        limits=LIMITS,
        ledger=Ledger(nodes.folder, node="n_a", watchdog=False),
        kept=kept or handle(client or nodes.client(), epoch),
        sandbox=sandbox,
    )
    nodes.children.append(child)
    return child


async def adopt(
    nodes: Nodes,
    epoch: int,
    client: KeeperClient | None = None,
    kept: KeeperHandle | None = None,
) -> ChildProcess:
    child = await ChildProcess.adopt(
        kept or handle(client or nodes.client(), epoch), service="service", limits=LIMITS
    )
    nodes.children.append(child)
    return child


async def die(client: KeeperClient, child: ChildProcess) -> None:
    """Close all that a node with one child has, as its death would."""
    child.read_stream.abort()
    child.write_stream.abort()
    await client.aclose()


async def next_note(child: ChildProcess) -> dict[str, object]:
    with anyio.fail_after(10):
        item = await child.read_stream.receive()
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCNotification)
    return item.message.params or {}


async def send(child: ChildProcess, method: str) -> None:
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method=method)
    await child.write_stream.send(SessionMessage(request))


ECHO = """
for number, line in enumerate(sys.stdin):
    note(number=number, method=json.loads(line)["method"])
"""


__all__ = [
    "ECHO",
    "LINGER",
    "NOTE",
    "Nodes",
    "adopt",
    "die",
    "handle",
    "next_note",
    "send",
    "start",
]
