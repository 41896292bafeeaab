"""The processes of a store, also on other machines, and the reports of those that run on this one."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio

from ...sessions.cluster.lease import SeenNode
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.node import NODES, Node
from ...sessions.records import NodeRecord, SessionRecord
from ...sessions.times import seconds_of, timestamp
from ..sockets.local_socket import send_content
from ..sockets.request import Refused
from .requests import OperatorRequest, ProcessUnavailable
from .requests import ask as send_request

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

STORE_SECONDS: Final = 5.0
"""Seconds that the database may take to answer."""

ANSWER_SECONDS = 3.0
MAX_IDS: Final = 1000
"""Sessions that a request names at most; one about more is about all."""

Send = Callable[[str, OperatorRequest], Awaitable[JSON]]
"""Runs a request in a node. Raises Refused and ProcessUnavailable."""


async def read_nodes(store: SQLStore) -> list[SeenNode]:
    """Return the processes that are not dead."""
    if not store.has_leases:
        return [SeenNode(record, 0, False) for record in await store.nodes()]
    async with store.leases() as leases:
        return await leases.look(within=STORE_SECONDS)


def describe_seen(node: SeenNode) -> JSON:
    """Return a process with its sessions at its last heartbeat."""
    record: NodeRecord = node.record
    return {
        "node": record.id,
        "state": "silent" if record.lease_seconds and node.is_expired else record.state.value,
        "sessions": record.sessions if record.lease_seconds else None,
        "capacity": record.capacity,
        "started_at": timestamp(record.started_at),
        "peer": record.peer or None,
        "address": record.address,
        "version": record.version or None,
    }


class ProcessVerb:
    """The handler of the verb `process` of a local socket: the pid of the process, and its address."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def __call__(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            record = self._node.record
            await send_content(connection, {"pid": record.pid, "address": record.address})


class LiveNodes:
    """The nodes of a store, and the reports of those that answered ask()."""

    def __init__(self, data: Path, nodes: Iterable[NodeRecord], send: Send | None = None) -> None:
        """`send` replaces the requests to the local sockets in the data folder."""
        self.folder = data / NODES
        self._send = send or self._send_locally
        self._nodes = {node.id: node for node in nodes}
        self._sessions: dict[str, JSON] = {}
        self._silent: set[str] = set()

    async def _send_locally(self, node: str, request: OperatorRequest) -> JSON:
        return await send_request(self.folder, node, request, seconds=ANSWER_SECONDS)

    async def ask(
        self, node_ids: Iterable[str | None], session_ids: Sequence[str] | None = None
    ) -> None:
        """Ask these nodes, all at once, which sessions they hold; with `session_ids`, which of these."""
        chosen = None if session_ids is None or len(session_ids) > MAX_IDS else list(session_ids)
        request = OperatorRequest(tool="operator_sessions", arguments={"session_ids": chosen})
        async with anyio.create_task_group() as tasks:
            for node in {node for node in node_ids if node is not None}:
                tasks.start_soon(self._ask_node, node, request)

    async def _ask_node(self, node: str, request: OperatorRequest) -> None:
        try:
            answer = await self._send(node, request)
        except (Refused, ProcessUnavailable):
            self._silent.add(node)
            return
        for session in cast("list[JSON]", answer.get("sessions", [])):
            self._sessions[str(session.get("session_id"))] = session

    def merge_report(self, record: SessionRecord) -> SessionRecord:
        """Return a record with the status and the last use that its owner reported."""
        report = self._sessions.get(record.id, {})
        if report.get("status") not in list(Status) or record.node is None:
            return record
        used_at = seconds_of(report.get("used_at"))
        times = {} if used_at is None else {"used_at": max(used_at, record.used_at)}
        return record.model_copy(update={"status": Status(report["status"]), **times})

    def bindings(self, session_id: str) -> list[JSON] | None:
        """Return the bindings of a session that its owner reported, None when no owner reported any."""
        return cast("list[JSON] | None", self._sessions.get(session_id, {}).get("services"))

    def open_services(self, record: SessionRecord) -> list[str] | None:
        """Return the services of a session whose connections are open, None if its owner did not answer."""
        bindings = self.bindings(record.id)
        if bindings is not None:
            return [str(each["service"]) for each in bindings if each["connected"]]
        return None if record.node in self._silent else []

    async def stderr(self, record: SessionRecord) -> dict[str, str]:
        """Ask the owner of a session for the last lines of stderr of its services, by service."""
        if record.node is None or not self.answers(record.node):
            return {}
        request = OperatorRequest(tool="operator_stderr", arguments={"session_id": record.id})
        try:
            answer = await self._send(record.node, request)
        except (Refused, ProcessUnavailable):
            return {}
        return cast("dict[str, str]", answer.get("stderr", {}))

    def answers(self, node: str) -> bool:
        """Whether a node answered ask()."""
        return node in self._nodes and node not in self._silent

    def report(self, session_id: str) -> JSON:
        """Return the description of a session that its owner reported, empty if there is none."""
        return self._sessions.get(session_id, {})

    def describe_node(self, node: str | None) -> str | None:
        """Return a description of the process in which a session is open, None for none."""
        if node is None:
            return None
        record = self._nodes.get(node)
        if record is None:
            return "a process that is gone"
        where = record.address or f"pid {record.pid}"
        return f"{where} (does not answer)" if node in self._silent else where
