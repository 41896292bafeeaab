"""Events of 2025 transport sessions, kept in memory for clients that reconnect with `Last-Event-ID`."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from ..config.ports import HttpSettings

RETRY_MS: Final = 1000
"""Milliseconds that a client should wait before it reconnects after a lost stream."""


@dataclass(frozen=True, slots=True)
class _Event:
    id: str
    stream: str
    message: JSONRPCMessage | None
    size: int


class SessionEvents(EventStore):
    """The events of one transport session, in order. Ids of other sessions are unknown to it."""

    def __init__(self, replay: Replay, owner: Hashable) -> None:
        self.owner = owner
        self.bytes = 0
        self._replay = replay
        self._prefix = secrets.token_hex(4)
        self._number = 0
        self._events: deque[_Event] = deque()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._number += 1
        size = 0 if message is None else len(message.model_dump_json(exclude_unset=True))
        event = _Event(f"{self._prefix}-{self._number}", stream_id, message, size)
        self._replay.add(self, event.size)
        self._events.append(event)
        while len(self._events) > self._replay.settings.replay_events:
            self.drop()
        return event.id

    def drop(self) -> bool:
        """Remove the oldest event. Returns False when there is none."""
        if not self._events:
            return False
        self._replay.remove(self, self._events.popleft().size)
        return True

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        events = list(self._events)
        start = next(
            (index for index, event in enumerate(events) if event.id == last_event_id), None
        )
        if start is None:
            # The id, and so its stream, is unknown: send later events of the session in this stream.
            return GET_STREAM_KEY
        stream = events[start].stream
        is_finished = False
        for event in events[start:]:
            if event.stream != stream:
                continue
            is_finished = is_finished or isinstance(event.message, JSONRPCResponse | JSONRPCError)
            if event.message is not None and event.id != last_event_id:
                await send_callback(EventMessage(event.message, event.id))
        return None if is_finished else stream


class Replay:
    """The events of all transport sessions, within limits per owner and in total.

    At a limit, the oldest event is dropped in the session of the owner that has the most bytes.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self._open: set[SessionEvents] = set()
        self._bytes: dict[Hashable, int] = {}
        self._total = 0

    def open(self, owner: Hashable) -> SessionEvents | None:
        """Return an event store for a new session, None when events are not stored."""
        if not self.settings.replay_events:
            return None
        events = SessionEvents(self, owner)
        self._open.add(events)
        return events

    def close(self, events: SessionEvents) -> None:
        """Remove a session and its events. A second call has no effect."""
        while events.drop():
            pass
        self._open.discard(events)

    def add(self, events: SessionEvents, size: int) -> None:
        """Count a new event, and make room for it."""
        owner = events.owner
        while self._bytes.get(owner, 0) + size > self.settings.replay_bytes:
            if not self._drop(owner):
                break
        while self._total + size > self.settings.replay_bytes_total:
            fullest = max(self._bytes, key=lambda owner_key: self._bytes[owner_key], default=owner)
            if not self._drop(fullest):
                break
        events.bytes += size
        self._total += size
        self._bytes[owner] = self._bytes.get(owner, 0) + size

    def remove(self, events: SessionEvents, size: int) -> None:
        """Count an event that was dropped."""
        events.bytes -= size
        self._total -= size
        self._bytes[events.owner] = self._bytes.get(events.owner, 0) - size
        if self._bytes[events.owner] <= 0:
            del self._bytes[events.owner]

    def _drop(self, owner: Hashable) -> bool:
        candidates = [events for events in self._open if events.owner == owner and events.bytes]
        return bool(candidates) and max(candidates, key=lambda events: events.bytes).drop()
