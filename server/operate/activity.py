"""The activity of a process for `statehold top`: the calls of its sessions, and the processes and memory behind them.

Everything is read when it is asked for; nothing runs between two requests.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import closing
from typing import Final

import anyio
import anyio.to_thread

from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import OPEN
from ...sessions.live.binding import Binding
from ...sessions.live.session import LiveSession
from ...sessions.node import Node
from ...sessions.records import SessionFilter
from ...sessions.registry import Registry
from ...sessions.store.base import Store
from ...sessions.views import describe_binding, timestamp
from ...tools.processes import procfs
from ..sockets.local_socket import send_content, send_error
from .sessions import describe_for_user, read_pages

SECONDS: Final = 10.0
"""Seconds that an answer may take."""
STORED: Final = 500
"""Most sessions of the store in an answer, those that were used last."""


class Activities:
    """The sessions of one process and their activity, as JSON documents."""

    def __init__(self, registry: Registry, node: Node, store: Store, *, closes_idle: bool) -> None:
        self._registry = registry
        self._node = node
        self._store = store
        self._closes_idle = closes_idle

    async def read(self, *, stored: bool) -> JSON:
        """Return the sessions that this process holds; with `stored`, also all open sessions of the store.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        sessions = [self._describe(session) for session in self._registry.owned_sessions()]
        pids = {
            pid
            for session in sessions
            for service in session["services"]
            for pid in service["pids"]
        }
        record = self._node.record
        document: JSON = {
            "node": record.id,
            "pid": record.pid,
            "address": record.address,
            "waiting": self._registry.statistics()["waiting"],
            "sessions": sessions,
            "memory": await anyio.to_thread.run_sync(_memory, {record.pid, *pids}),
        }
        if stored:
            statuses = SessionFilter(statuses=sorted(OPEN))
            records, more = await read_pages(self._store, statuses, STORED)
            document["stored"] = [
                {
                    **describe_for_user(each, closes_idle=self._closes_idle),
                    "principal": each.owner,
                    "services": each.services,
                    "node": each.node,
                }
                for each in records
            ]
            document["more"] = more
        return document

    def _describe(self, session: LiveSession) -> JSON:
        used_at = max(session.record.used_at, session.idle_since)
        record = session.record.model_copy(update={"status": session.status, "used_at": used_at})
        now = self._registry.core.clock.now()
        activity = session.activity
        last = activity.last
        return {
            **describe_for_user(record, closes_idle=self._closes_idle),
            "principal": record.owner,
            "in_flight": session.in_flight,
            "calls": activity.ended,
            "running": [
                {
                    "service": call.service,
                    "tool": call.tool,
                    "started_at": timestamp(started_at),
                    "was_sent": call.was_sent,
                }
                for call, started_at in activity.running.items()
            ],
            "last_call": None
            if last is None
            else {
                "service": last.service,
                "tool": last.tool,
                "status": last.status,
                "ended_at": timestamp(last.ended_at),
            },
            "asking": [
                {"service": name, "tool": tool, "since": timestamp(now - seconds)}
                for name, binding in session.bindings.items()
                if binding.live is not None
                for tool, seconds in binding.live.questions.waiting_times(session.id)
            ],
            "busy": session.busy,
            "services": [_describe_service(binding) for binding in session.bindings.values()],
        }


def _describe_service(binding: Binding) -> JSON:
    live = binding.live
    return {
        **describe_binding(binding.record, opening=live is not None and live.phase == "opening"),
        "pids": [] if live is None else live.pids(),
    }


def _memory(pids: Iterable[int]) -> dict[str, int]:
    """Return the bytes of memory of process trees by the ids of their roots; that of this process is without children."""
    own = os.getpid()
    sizes = {
        pid: procfs.resident_memory(pid) if pid == own else procfs.tree_memory(pid) for pid in pids
    }
    return {str(pid): size for pid, size in sizes.items() if size is not None}


class ActivityVerb:
    """The handler of the verb `activity` of a local socket: `{"stored": true}` adds the open sessions of the store."""

    def __init__(self, activities: Activities) -> None:
        self._activities = activities

    async def __call__(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                with anyio.fail_after(SECONDS):
                    content = await self._activities.read(stored=members.get("stored") is True)
            except (StoreUnavailable, TimeoutError) as error:
                await send_error(
                    connection, "store_unavailable", str(error) or "It took too long.", ""
                )
            else:
                await send_content(connection, content)
