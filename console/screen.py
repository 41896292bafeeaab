"""The live picture of a session's browser, and the input of the person who has control of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..server.cluster.node_connection import ConnectionEnded
from ..server.cluster.node_messages import encode_picture
from ..server.gateway.gateway import Gateway
from ..server.http.exchange import BODY_LIMIT
from ..server.operate.pictures import SessionPictures, ViewerQuery
from ..server.sockets.request import Refused
from ..sessions.errors import (
    ServiceUnavailable,
    SessionBusy,
    SessionError,
    SessionNotFound,
    StoreUnavailable,
)
from ..sessions.json_codec import JSON
from ..sessions.lifecycle import Status
from ..sessions.live.control_lease import is_driven
from ..sessions.records import Principal, SessionRecord
from .logins import Login, Logins
from .owner_calls import MAX_ATTEMPTS, RETRY_SECONDS, OwnerCalls, OwnerChanged
from .requests import FramesQuery, InputBody
from .routes import SESSION, USE, VIEW, ApiCall, error_response, json_response, route
from .session_documents import ConsoleSessions
from .streams import Check, LoginStream, SendPart

MOVED: Final[JSON] = {
    "state": "moved",
    "message": "The session moves to another process.",
    "tab": None,
    "age_seconds": None,
    "tabs": list[JSON](),
    "question": None,
}
"""The description of the last message when the session goes on elsewhere, or later: a viewer connects again."""
_NOT_OPEN: Final = frozenset((SessionBusy.code, ServiceUnavailable.code))
"""The codes of a session without an open page."""


class ScreenHandlers:
    """The handlers of pictures and input, for sessions of this process and of others."""

    def __init__(
        self, gateway: Gateway, sessions: ConsoleSessions, calls: OwnerCalls, logins: Logins
    ) -> None:
        self._sessions = sessions
        self._calls = calls
        self._logins = logins
        self._pages = WatchedPages(gateway, calls)

    @route(
        "GET",
        f"{SESSION}/frames",
        "Watch the page of its browser",
        audience="guest",
        rights="embed",
        shared=VIEW,
        answer="frames",
    )
    async def frames(self, call: ApiCall, query: FramesQuery) -> Response:
        login = call.require_login()
        record = await self._sessions.find_for(call)
        is_own = call.user.owner in (None, record.owner)
        check = None if is_own else partial(self._is_shared, call)
        viewer = ViewerQuery(**query.model_dump(), person=call.user.key)
        return FrameStream(self._pages, record, viewer, self._logins, login, check)

    async def _is_shared(self, call: ApiCall) -> bool:
        """Whether a session of another is shared with the user of a request. Without the store, it goes on."""
        with suppress(StoreUnavailable):
            try:
                await self._sessions.find_for(call)
            except SessionNotFound:
                return False
        return True

    @route(
        "POST",
        f"{SESSION}/input",
        "Use its browser while you have control",
        audience="guest",
        rights="control",
        shared=USE,
        body_bytes=BODY_LIMIT,
    )
    async def input(self, call: ApiCall, body: InputBody) -> Response:
        record = await self._sessions.find_for(call)
        arguments: JSON = {**body.model_dump(), "login": call.require_login().id}
        return json_response(await self._calls.call(record, "operator_input", **arguments))


class WatchedPages:
    """The pages of the sessions of the store, whichever process holds them. It keeps nothing between viewers."""

    def __init__(self, gateway: Gateway, calls: OwnerCalls) -> None:
        self._node = gateway.node.id
        self._registry = gateway.registry
        self._store = gateway.store
        self._calls = calls
        self._here = SessionPictures(gateway.registry)

    @asynccontextmanager
    async def watch(
        self, record: SessionRecord, query: ViewerQuery
    ) -> AsyncGenerator[tuple[SessionRecord, AsyncIterator[bytes]]]:
        """Yield the messages for one viewer, with the record of the session as its owner has it.

        A session that a person drives, and whose process has ended, is opened again: its agent may not do that.

        Raises:
            SessionError, Refused: the session has no page that can be shown.
        """
        async with AsyncExitStack() as stack:
            for _ in range(MAX_ATTEMPTS):
                try:
                    messages = await self._open(stack, record, query)
                    break
                except OwnerChanged:
                    self._registry.forget_owner(record.id)
                    await anyio.sleep(RETRY_SECONDS)
                except (SessionError, Refused) as error:
                    if error.code not in _NOT_OPEN or not is_driven(
                        record, self._registry.core.clock.now()
                    ):
                        raise
                    await self._calls.call(record, "session_resume")
                record = await self.read(record.id)
            else:
                raise SessionBusy("The session keeps changing.", session_id=record.id)
            yield record, messages

    async def _open(
        self, stack: AsyncExitStack, record: SessionRecord, query: ViewerQuery
    ) -> AsyncIterator[bytes]:
        owner = Principal.of_key(record.owner)
        if self._registry.find_here(owner, record.id) is not None:
            return await stack.enter_async_context(self._here.watch(owner, record.id, query))
        if record.node in (None, self._node):
            raise SessionBusy(
                "The session is paused.",
                session_id=record.id,
                recovery="Resume it to see its page.",
            )
        return await stack.enter_async_context(self._calls.watch(record, query.model_dump()))

    async def read(self, session_id: str) -> SessionRecord:
        """Return the record of a session.

        Raises:
            SessionNotFound: it is gone.
        """
        record = await self._store.get(session_id)
        if record is None:
            raise SessionNotFound
        return record

    async def has_moved(self, record: SessionRecord) -> bool:
        """Whether a session goes on, and its owner has it no more as in a record."""
        with suppress(StoreUnavailable):
            current = await self._store.get(record.id)
            if current is None or current.status in (Status.CLOSING, Status.CLOSED):
                return False
            is_held = (current.node, current.epoch) == (record.node, record.epoch)
            return not is_held or current.status is Status.PAUSED
        return False


class FrameStream(LoginStream):
    """The response that sends pictures; it also ends with the browser. See encode_picture() for its messages."""

    def __init__(
        self,
        pages: WatchedPages,
        record: SessionRecord,
        query: ViewerQuery,
        logins: Logins,
        login: Login,
        check: Check | None = None,
    ) -> None:
        super().__init__("application/octet-stream", logins, login, record.owner, check)
        self._pages = pages
        self._record = record
        self._query = query
        self._messages: AsyncIterator[bytes] | None = None

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._pages.watch(self._record, self._query) as watched:
                self._record, self._messages = watched
                await super().answer(scope, receive, send)
        except (SessionError, Refused, StoreUnavailable) as error:
            await error_response(error)(scope, receive, send)

    async def send_parts(self, send: SendPart) -> None:
        assert self._messages is not None
        try:
            async for message in self._messages:
                await send(message)
            has_moved = await self._pages.has_moved(self._record)
        except ConnectionEnded:
            has_moved = True
        if has_moved:
            await send(encode_picture(MOVED, b""))
