"""The activity of a process for `statehold top`: the calls of its sessions, and the memory behind them.

Everything is read when it is asked for; nothing runs between two requests.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import OPEN
from ...sessions.live.session import LiveSession
from ...sessions.records import SessionFilter
from ...sessions.registry import Registry
from ...sessions.times import timestamp
from ...tools.processes import procfs
from ..sockets.local_socket import send_content, send_error
from .sessions import describe_for_user, read_pages

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

SECONDS: Final = 10.0
"""Seconds that an answer may take."""
MAX_STORED: Final = 500
"""Most sessions of the store in an answer, those that were used last."""


class Activities:
    """The sessions of one process and their activity, as JSON documents."""

    def __init__(self, registry: Registry, store: SQLStore, *, closes_idle: bool) -> None:
        self._registry = registry
        self._store = store
        self._closes_idle = closes_idle

    async def read(self) -> JSON:
        """Return the sessions that this process holds, and all open sessions of the store.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        sessions = self._registry.owned_sessions()
        documents = [self._describe(session) for session in sessions]
        pids = [_pids(session) for session in sessions]
        users = Counter(pid for each in pids for pid in each)
        sizes = await anyio.to_thread.run_sync(_memory, {os.getpid(), *users})
        for document, own in zip(documents, pids, strict=True):
            document["memory"] = sum(sizes.get(pid, 0) for pid in own) or None
            document["shares_memory"] = any(users[pid] > 1 for pid in own)
        open_sessions = SessionFilter(statuses=sorted(OPEN))
        records, _ = await read_pages(self._store, open_sessions, MAX_STORED)
        return {
            "waiting": self._registry.statistics()["waiting"],
            "memory": sum(sizes.values()),
            "sessions": documents,
            "stored": [
                describe_for_user(record, closes_idle=self._closes_idle) for record in records
            ],
        }

    def _describe(self, session: LiveSession) -> JSON:
        used_at = max(session.record.used_at, session.idle_since)
        record = session.record.model_copy(update={"status": session.status, "used_at": used_at})
        last = session.activity.last
        return {
            **describe_for_user(record, closes_idle=self._closes_idle),
            "calls": session.activity.ended,
            "running": _running(session, self._registry.core.clock.now(), used_at),
            "last_call": None if last is None else _call(last.status, last.tool, last.ended_at),
            "busy": session.use(),
        }


def _running(session: LiveSession, now: float, used_at: float) -> list[JSON]:
    """Return the calls that run: first those that ask their caller, then those that wait for their turn."""
    asking = [
        _call("asks", tool, now - seconds)
        for binding in session.bindings.values()
        if binding.live is not None
        for tool, seconds in binding.live.questions.waiting_times(session.id)
    ]
    asked = Counter(call["tool"] for call in asking)
    calls: list[JSON] = []
    for call, started_at in session.activity.running.items():
        if asked[call.tool]:
            asked[call.tool] -= 1
        else:
            calls.append(_call("runs" if call.was_sent else "waits", call.tool, started_at))
    # Requests for resources or prompts, and the calls of an earlier process.
    unknown = session.in_flight - len(asking) - len(calls)
    calls += [_call("runs", "a request", used_at)] * unknown
    return asking + sorted(calls, key=lambda call: call["state"] != "waits")


def _call(state: str, tool: str, since: float) -> JSON:
    return {"state": state, "tool": tool, "since": timestamp(since)}


def _pids(session: LiveSession) -> set[int]:
    lives = [binding.live for binding in session.bindings.values()]
    return {pid for live in lives if live is not None for pid in live.pids()}


def _memory(pids: Iterable[int]) -> dict[int, int]:
    """Return the bytes of memory of process trees by the ids of their roots; that of this process is without children."""
    own = os.getpid()
    sizes = {
        pid: procfs.resident_memory(pid) if pid == own else procfs.tree_memory(pid) for pid in pids
    }
    return {pid: size for pid, size in sizes.items() if size is not None}


class ActivityVerb:
    """The handler of the verb `activity` of a local socket."""

    def __init__(self, activities: Activities) -> None:
        self._activities = activities

    async def __call__(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            try:
                with anyio.fail_after(SECONDS):
                    content = await self._activities.read()
            except (StoreUnavailable, TimeoutError) as error:
                await send_error(
                    connection, "store_unavailable", str(error) or "It took too long.", ""
                )
            else:
                await send_content(connection, content)
