"""One Statehold node over a data folder, driven line by line: `python worker.py DATA LOG`.

Each line on stdin is a JSON request, answered by a JSON line: {"op": "create"}, {"op": "call", "session", "mark"},
{"op": "update", "session", "values"}, {"op": "pause", "session"}. The upstream is the quick counter, which writes every call
it gets to LOG.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.file import FileReadStream
from anyio.streams.text import TextReceiveStream

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.counting import Nobody

from statehold.sessions.calls.request import Request
from statehold.sessions.calls.router import Router
from statehold.sessions.clock import SystemClock
from statehold.sessions.core import Core
from statehold.sessions.errors import SessionError
from statehold.sessions.node import Node, new_node_id
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.registry import Registry
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.create import CreationOptions
from statehold.tools.processes.ledger import Ledger
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

QUICK = Path(__file__).resolve().parents[1] / "upstreams" / "quick.py"


class Worker:
    def __init__(self, registry: Registry, router: Router) -> None:
        self.registry = registry
        self.router = router

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return await getattr(self, request.pop("op"))(**request)
        except SessionError as error:
            return {"error": error.code, "message": error.message}

    async def create(self) -> dict[str, Any]:
        return {"session": (await self.registry.create(LOCAL, CreationOptions())).id}

    async def call(self, session: str, mark: str) -> dict[str, Any]:
        request = Request(LOCAL, session, "quick", "inc", {"mark": mark})
        answer = await self.router.call(request, Nobody())
        return {**answer.payload["structuredContent"], "notice": answer.notice}

    async def update(self, session: str, values: dict[str, Any]) -> dict[str, Any]:
        state = await self.registry.states.update(LOCAL, session, values)
        return {"version": state.version}

    async def pause(self, session: str) -> dict[str, Any]:
        await self.registry.pause(LOCAL, session)
        return {}


async def main(data: Path, log: Path) -> None:
    clock = SystemClock()
    config = UpstreamConfig(
        command=sys.executable, args=[str(QUICK), "--log", str(log)], pause="release"
    )
    node_id = new_node_id()
    ledger = Ledger(data, node=node_id)
    async with (
        SQLStore.sqlite(data) as store,
        Node(
            store, data, address="a worker", clock=clock.now, node_id=node_id, bury=ledger.sweep
        ) as node,
    ):
        service = UpstreamService("quick", config, data=data, ledger=ledger)
        policy = Policy(recovery_backoff=(0.01, 0.1))
        async with Registry(
            Core.create(store, node, {"quick": service}, policy=policy, clock=clock)
        ) as registry:
            worker = Worker(registry, Router(registry))
            sys.stdout.write('{"ready": true}\n')
            sys.stdout.flush()
            rest = ""
            async for text in TextReceiveStream(FileReadStream(sys.stdin.buffer.raw)):  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
                *lines, rest = (rest + text).split("\n")
                for line in lines:
                    reply = await worker.answer(json.loads(line))
                    sys.stdout.write(json.dumps(reply) + "\n")
                    sys.stdout.flush()
        await ledger.aclose()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]))
