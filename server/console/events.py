"""Server-sent events: the summary of each session that changed."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...sessions.errors import SessionNotFound, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import SessionRecord
from ..asgi import wait_disconnected
from ..cluster.messages import encode
from ..control.nodes import ANSWER_SECONDS
from ..control.requests import ControlRequest, ControlUnavailable
from ..gateway.gateway import Gateway
from ..sockets.request import Refused
from .calls import ApiCall, Handler
from .logins import ConsoleUser, Login, Logins
from .owner_calls import OwnerCalls
from .session_documents import ConsoleSessions

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at the sessions of this process, and so between two events of a session."""
OTHER_NODES_LOOKS: Final = 4
"""Looks after which the other nodes are asked once."""
COMMENT_SECONDS: Final = 15.0
MOST_EVENTS: Final = 200
"""Events of one look; the others follow with the next one."""

Fingerprint = tuple[object, ...]


class EventHandlers:
    """The streams of events. Nothing runs while nobody follows one."""

    def __init__(
        self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls, logins: Logins
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._calls = calls
        self._logins = logins

    def handlers(self) -> dict[str, Handler]:
        return {"events": self._open}

    async def _open(self, call: ApiCall) -> Response:
        login = call.require_login()
        changes = SessionChanges(self._gateway, self._sessions, self._calls, login.user)
        return EventStream(changes, login, login.expires_at - self._logins.clock())


class SessionChanges:
    """The changes of the sessions that exist for one user, since it was made."""

    def __init__(
        self,
        gateway: Gateway,
        sessions: ConsoleSessions,
        calls: OwnerCalls,
        user: ConsoleUser,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._calls = calls
        self._user = user
        self._seen: dict[str, Fingerprint] | None = None
        self._seen_elsewhere: dict[str, Fingerprint] | None = None
        self._looks = 0

    async def look(self) -> list[JSON]:
        """Return the summaries of the sessions that changed since the last look; none at the first look."""
        changed = self._look_here()
        if self._looks % OTHER_NODES_LOOKS == 0:
            changed += await self._look_elsewhere()
        self._looks += 1
        summaries: list[JSON] = []
        records: list[SessionRecord] = []
        for session_id in dict.fromkeys(changed):
            try:
                records.append(await self._sessions.find(self._user, session_id))
            except SessionNotFound:
                summaries.append({"session_id": session_id, "status": "deleted"})
        return summaries + await self._sessions.documents.describe_all(records)

    def _look_here(self) -> list[str]:
        owned = {
            session.id: session
            for session in self._gateway.registry.owned_sessions()
            if self._user.may_see(session.record)
        }
        before = self._seen
        if before is None:
            self._seen = {key: _fingerprint(session) for key, session in owned.items()}
            return []
        changed = [
            key for key, session in owned.items() if before.get(key) != _fingerprint(session)
        ]
        changed += before.keys() - owned.keys()
        for key in (changed := changed[:MOST_EVENTS]):
            if key in owned:
                before[key] = _fingerprint(owned[key])
            else:
                del before[key]
        return changed

    async def _look_elsewhere(self) -> list[str]:
        own = self._gateway.node.id
        try:
            others = [node.id for node in await self._gateway.store.nodes() if node.id != own]
        except StoreUnavailable:
            return []
        found: dict[str, Fingerprint] = {}
        for node in others:
            request = ControlRequest(tool="operator_sessions")
            try:
                answer = await self._calls.ask_node(node, request, seconds=ANSWER_SECONDS)
            except (Refused, ControlUnavailable):
                continue
            for session in answer["sessions"]:
                found[str(session["session_id"])] = (encode(session),)
        before, self._seen_elsewhere = self._seen_elsewhere, found
        if before is None:
            return []
        changed = [key for key, value in found.items() if before.get(key) != value]
        changed += before.keys() - found.keys()
        return [key for key in changed[:MOST_EVENTS] if await self._exists(key)]

    async def _exists(self, session_id: str) -> bool:
        """Whether a session of another node exists for the user: of one that does not, nothing is said."""
        try:
            await self._sessions.find(self._user, session_id)
        except SessionNotFound:
            return False
        return True


def _fingerprint(session: LiveSession) -> Fingerprint:
    record, lease = session.record, session.record.control
    return (
        session.status,
        session.in_flight,
        session.idle_since,
        session.activity.ended,
        record.name,
        record.lifetime_ends_at,
        record.metadata,
        tuple(record.services),
        (lease.driver, lease.epoch, lease.since),
    )


class EventStream(Response):
    """The response that sends the changes until the client leaves or the login ends."""

    def __init__(self, changes: SessionChanges, login: Login, seconds: float) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._changes = changes
        self._login = login
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_left, receive, tasks.cancel_scope)
            tasks.start_soon(_cancel_when_ended, self._login, self._seconds, tasks.cancel_scope)
            await self._send_changes(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_changes(self, send: Send) -> None:
        await self._changes.look()
        block, sent_at = b": open\n\n", anyio.current_time()
        while True:
            if block:
                await send({"type": "http.response.body", "body": block, "more_body": True})
                sent_at = anyio.current_time()
            await anyio.sleep(LOOK_SECONDS)
            summaries: list[JSON] = []
            # The next look may find the store again.
            with suppress(StoreUnavailable):
                summaries = await self._changes.look()
            block = b"".join(b"event: session\ndata: " + encode(one) + b"\n" for one in summaries)
            if not block and anyio.current_time() - sent_at >= COMMENT_SECONDS:
                block = b": still there\n\n"


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    await wait_disconnected(receive)
    scope.cancel()


async def _cancel_when_ended(login: Login, seconds: float, scope: anyio.CancelScope) -> None:
    with anyio.move_on_after(seconds):
        await login.ended.wait()
    scope.cancel()


__all__ = ["EventHandlers"]
