"""Sessions that all nodes are asked for at the same time, by calls without an operation id, which no receipt protects.

A node that goes on although it lost a session runs such calls after the new owner: the order of the upstream shows it.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Final

import anyio
import httpx2

from ..asking import Asking
from ..soak.findings import Findings
from .cluster import ClusterNode

ANSWER_SECONDS: Final = 30.0
REST_SECONDS: Final = (0.05, 0.25)


class PlainSession:
    """One session; each node has a caller of its own that counts in it. A session that is gone is replaced by a new one."""

    def __init__(
        self, number: int, nodes: list[ClusterNode], findings: Findings, random: Random
    ) -> None:
        self.tag = f"plain{number}"
        self._nodes = nodes
        self._home = nodes[number % len(nodes)]
        """The node that is asked to create the session, so that each node has some."""
        self._findings = findings
        self._random = random
        self._numbers = itertools.count(1)
        self._session = ""
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for node in self._nodes:
                tasks.start_soon(self._call_through, node)

    async def _call_through(self, node: ClusterNode) -> None:
        async with Asking(node.port, ANSWER_SECONDS) as asking:
            while not self._stopping:
                session = self._session
                try:
                    if session:
                        await self._call(asking, session)
                    elif node is self._home:
                        await self._create(asking)
                except httpx2.TimeoutException:
                    text = f"{self.tag}: inc through {node.name} at {session}"
                    self._findings.add("calls without an answer", text)
                except (httpx2.TransportError, ValueError):
                    # The node is away, or ended during the answer.
                    self._findings.calls["plain: no node"] += 1
                    await anyio.sleep(0.2)
                except RuntimeError as error:
                    self._findings.calls["plain: error"] += 1
                    if session == self._session and any(code in str(error) for code in GONE):
                        self._session = ""
                    await anyio.sleep(0.1)
                await anyio.sleep(self._random.uniform(*REST_SECONDS))

    async def _call(self, asking: Asking, session: str) -> None:
        await asking.call("inc", {"session_id": session, "caller": self.tag, "of": session})
        self._findings.calls["plain: ok"] += 1

    async def _create(self, asking: Asking) -> None:
        name = f"{self.tag}-{next(self._numbers)}"
        self._session = (await asking.call("session_create", {"name": name}))["session_id"]


GONE: Final = ("session_not_found", "session_expired", "session_closed", "session_failed")
