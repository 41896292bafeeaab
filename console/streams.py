"""The responses that send until the client leaves or its login ends, and server-sent events of changed sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..server.asgi import cancel_when_left
from ..server.cluster.node_messages import encode
from ..server.gateway.gateway import Gateway
from ..server.operate.nodes import ANSWER_SECONDS
from ..server.operate.requests import OperatorRequest, ProcessUnavailable
from ..server.sockets.request import Refused
from ..sessions.errors import SessionLimit, SessionNotFound, StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.records import SessionRecord, ShareRights
from .logins import CHECK_SECONDS, ConsoleUser, Login, Logins
from .owner_calls import OwnerCalls
from .routes import ApiCall, error_response, route
from .session_documents import ConsoleSessions

SendPart = Callable[[bytes], Awaitable[None]]

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at the sessions of this process, and so between two events of a session."""
OTHER_NODES_LOOKS: Final = 4
"""Looks after which the other nodes are asked once."""
COMMENT_SECONDS: Final = 15.0


class LoginStream(Response):
    """A response of unknown length. It ends at the latest when the login expires.

    A subclass sends the parts; the response ends when it returns, or earlier with the client or the login, or when
    may_go_on() says so. `owner` is the key of the owner of a guest's session. A person with too many streams gets
    `session_limit` instead.
    """

    def __init__(self, media_type: str, logins: Logins, login: Login, owner: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._logins = logins
        self._login = login
        self._owner = owner
        self._seconds = login.expires_at - logins.clock()

    async def send_parts(self, send: SendPart) -> None:
        """Send the parts of the body."""
        raise NotImplementedError

    async def may_go_on(self) -> bool:
        """Whether its user may still have it. It is asked all the time."""
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._logins.stream(self._login, self._owner))
            except SessionLimit as error:
                await error_response(error)(scope, receive, send)
                return
            await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_part(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
            tasks.start_soon(self._cancel_when_ended, tasks.cancel_scope)
            tasks.start_soon(self._cancel_when_refused, tasks.cancel_scope)
            await self.send_parts(send_part)
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cancel_when_ended(self, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self._seconds):
            await self._login.ended.wait()
        scope.cancel()

    async def _cancel_when_refused(self, scope: anyio.CancelScope) -> None:
        while True:
            if not await self.may_go_on():
                scope.cancel()
            await anyio.sleep(CHECK_SECONDS)


class EventHandlers:
    """The streams of events. Nothing runs while nobody follows one."""

    def __init__(
        self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls, logins: Logins
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._calls = calls
        self._logins = logins

    @route(
        "GET",
        "/events",
        "Follow changes of sessions as server-sent events",
        audience="guest",
        answer="events",
    )
    async def events(self, call: ApiCall) -> Response:
        login = call.require_login()
        user, owner = login.user, login.user.owner or ""
        if user.session_id is not None:
            owner = (await self._sessions.find(user, user.session_id)).owner
        changes = FollowedSessions(self._gateway, self._sessions, self._calls, user)
        return EventStream(changes, self._logins, login, owner)


class FollowedSessions:
    """The changes of the sessions that exist for one user, on all nodes, since the first look."""

    def __init__(
        self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls, user: ConsoleUser
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._calls = calls
        self._user = user
        self._numbers: dict[str, int] = {}
        """The number of the last change that each node has told."""
        self._looks = 0
        self._shared: set[str] = set()
        """The sessions of others that are shared with the user."""

    async def look(self) -> list[JSON]:
        """Return the summaries of the sessions that changed since the last look; none at the first look."""
        nodes = [self._gateway.node.id]
        if self._looks % OTHER_NODES_LOOKS == 0:
            nodes += [n.id for n in await self._gateway.store.nodes() if n.id not in nodes]
            self._numbers = {n: number for n, number in self._numbers.items() if n in nodes}
            self._shared = await self._sessions.shared_ids(self._user)
        self._looks += 1
        changed = [session_id for node in nodes for session_id in await self._ask(node)]
        summaries: list[JSON] = []
        records: list[SessionRecord] = []
        for session_id in dict.fromkeys(changed):
            try:
                records.append(await self._sessions.find(self._user, session_id, ShareRights.VIEW))
            except SessionNotFound:
                summaries.append({"session_id": session_id, "status": "deleted"})
        return summaries + await self._sessions.documents.describe_all(records)

    async def _ask(self, node: str) -> list[str]:
        """Return the sessions of a node that changed, as far as they exist for the user."""
        arguments = {"since": self._numbers.get(node)}
        request = OperatorRequest(tool="operator_changes", arguments=arguments)
        try:
            answer = await self._calls.ask_node(node, request, seconds=ANSWER_SECONDS)
        except (Refused, ProcessUnavailable):
            return []
        self._numbers[node] = int(answer["number"])
        user = self._user
        return [
            str(change["session_id"])
            for change in answer["changes"]
            if (user.owner in (None, change["owner"]) or change["session_id"] in self._shared)
            and user.session_id in (None, change["session_id"])
        ]


class EventStream(LoginStream):
    """The response that sends the changes."""

    def __init__(self, changes: FollowedSessions, logins: Logins, login: Login, owner: str) -> None:
        super().__init__("text/event-stream", logins, login, owner)
        self._changes = changes

    async def send_parts(self, send: SendPart) -> None:
        await self._changes.look()
        block, sent_at = b": open\n\n", anyio.current_time()
        while True:
            if block:
                await send(block)
                sent_at = anyio.current_time()
            await anyio.sleep(LOOK_SECONDS)
            summaries: list[JSON] = []
            # The next look may find the store again.
            with suppress(StoreUnavailable):
                summaries = await self._changes.look()
            block = b"".join(b"event: session\ndata: " + encode(one) + b"\n" for one in summaries)
            if not block and anyio.current_time() - sent_at >= COMMENT_SECONDS:
                block = b": still there\n\n"
