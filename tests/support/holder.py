"""A process that holds sessions of a data folder open, with a local socket, until its stdin is closed.

`holder.py DATA NAME...` prints `{"node": ID, "sessions": {NAME: ID}}` once everything is there. A name with a slash is
`OWNER/NAME`. The session "busy" has a call in flight. With --silent nothing listens on the local socket.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from statehold.server.operate.handler import OperateVerb, OperatorHandler
from statehold.server.sockets.local_socket import local_socket
from statehold.sessions.core import Core
from statehold.sessions.live.session import LiveSession
from statehold.sessions.node import NODES, Node
from statehold.sessions.records import Principal
from statehold.sessions.registry import Registry
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.create import CreationOptions


async def main(data: Path, names: list[str], silent: bool) -> None:
    store = SQLStore.sqlite(data)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(store)
        starting = Node(store, data, address=f"holder, pid {os.getpid()}", clock=time.time)
        node = await stack.enter_async_context(starting)
        registry = await stack.enter_async_context(Registry(Core.create(store, node, {})))
        sessions: list[LiveSession] = []
        for name in names:
            owner, _, name = name.rpartition("/")
            principal = Principal(subject=owner or "local")
            sessions.append(await registry.create(principal, CreationOptions(name=name)))
            if name == "busy":
                registry.admission.count_in(sessions[-1])
        if not silent:
            control = OperateVerb(OperatorHandler(registry, store))
            local = await stack.enter_async_context(local_socket(data / NODES, node.id))
            await stack.enter_async_context(local.serve({"operate": control}))
        description = {"node": node.id, "sessions": {s.record.name: s.id for s in sessions}}
        sys.stdout.write(json.dumps(description) + "\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        for session in sessions:
            if session.in_flight:
                registry.admission.release(session)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--silent"]
    anyio.run(main, Path(words[0]), words[1:], "--silent" in sys.argv)
