"""The live picture of a session's browser, and the input of the person who has control of it."""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Final

import anyio
from pydantic import ValidationError
from starlette.responses import Response

from ...sessions.errors import (
    InvalidArgument,
    ServiceNotBound,
    ServiceUnavailable,
    SessionBusy,
)
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import Principal
from ...sessions.transitions.control import Controls
from .calls import ApiCall, Handler
from .errors import json_response
from .logins import Login, Logins
from .requests import FramesQuery, InputBody
from .session_documents import ConsoleSessions
from .streams import LoginStream, SendPart

if TYPE_CHECKING:
    from ...tools.browser.connection import BrowserConnection
    from ...tools.browser.screencast.frames import ScreenUpdate

_LENGTH: Final = struct.Struct(">I")


class ScreenHandlers:
    """The handlers of pictures and input, for sessions whose browser this process holds."""

    def __init__(self, controls: Controls, sessions: ConsoleSessions, logins: Logins) -> None:
        self._controls = controls
        self._sessions = sessions
        self._logins = logins

    def handlers(self) -> dict[str, Handler]:
        return {"frames": self._frames, "input": self._input}

    async def _find(self, call: ApiCall) -> tuple[LiveSession, BrowserConnection]:
        """Return a session with its browser.

        Raises:
            SessionError: there is no such session, or it has no browser open here.
        """
        record = await self._sessions.find(call.user, call.session_id)
        session = self._sessions.find_here(record.id)
        if session is None:
            if record.node is None:
                raise SessionBusy("The session is paused.", recovery="Resume it to see its page.")
            raise SessionBusy(
                "Another process holds the session.", recovery="Open the console of that process."
            )
        return session, _browser_of(session)

    async def _frames(self, call: ApiCall) -> Response:
        query = call.query
        assert isinstance(query, FramesQuery)
        login = call.require_login()
        _, connection = await self._find(call)
        seconds = login.expires_at - self._logins.clock()
        return FrameStream(connection, query, login, seconds)

    async def _input(self, call: ApiCall) -> Response:
        from ...tools.browser.input.events import InputBatch

        body = call.body
        assert isinstance(body, InputBody)
        session, connection = await self._find(call)
        try:
            batch = InputBatch.model_validate(body.model_dump())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, first["loc"]))
            raise InvalidArgument(f"{location}: {first['msg'].lower()}.") from None
        owner = Principal.of_key(session.record.owner)
        login = call.require_login().id
        grant = await self._controls.grant(owner, session.id, batch.epoch, login=login)
        outcome = await connection.human_control.send(batch, grant)
        return json_response({"copied": outcome.copied, "refusals": list(outcome.refusals)})


class FrameStream(LoginStream):
    """The response that sends pictures; it also ends with the browser.

    Each message is its length, the length of its description, the description as JSON, and a JPEG or nothing. Lengths are
    unsigned numbers of four bytes, the most significant first.
    """

    def __init__(
        self, connection: BrowserConnection, query: FramesQuery, login: Login, seconds: float
    ) -> None:
        super().__init__("application/octet-stream", login, seconds)
        self._connection = connection
        self._query = query

    async def send_parts(self, send: SendPart) -> None:
        pause = 1 / self._query.fps
        async with self._connection.screencast.watch(self._query.tab) as viewer:
            async for update in viewer:
                next_at = anyio.current_time() + pause
                message = self._message(update)
                await send(_LENGTH.pack(len(message)) + message)
                await anyio.sleep_until(next_at)

    def _message(self, update: ScreenUpdate) -> bytes:
        frame, question = update.frame, update.question
        session = self._connection.session
        age = update.age(time.time())
        about: JSON = {
            "state": update.condition.value,
            "tab": update.tab,
            "age_seconds": None if age is None else round(age, 2),
            "tabs": [
                {"index": index, "url": entry.url, "current": index == session.tabs.current_index}
                for index, entry in enumerate(session.tabs.entries)
            ],
            "question": None,
        }
        if question is not None:
            about["question"] = {
                "kind": question.kind,
                "message": question.message,
                "default": question.default,
            }
        picture = b""
        if frame is not None:
            picture = frame.jpeg
            about |= {"number": frame.number, "width": frame.width, "height": frame.height}
        description = json.dumps(about).encode()
        return _LENGTH.pack(len(description)) + description + picture


def _browser_of(session: LiveSession) -> BrowserConnection:
    """Return the open browser of a session.

    Raises:
        ServiceNotBound: it uses none.
        ServiceUnavailable: it has none open.
    """
    from ...tools.browser.connection import BrowserConnection
    from ...tools.browser.service import BrowserService

    bindings = [b for b in session.bindings.values() if isinstance(b.service, BrowserService)]
    if not bindings:
        raise ServiceNotBound("The session uses no browser.", session_id=session.id)
    for binding in bindings:
        live = binding.live
        if live is not None and live.usable and isinstance(live.connection, BrowserConnection):
            return live.connection
    raise ServiceUnavailable("The browser of the session is not open.", session_id=session.id)


__all__ = ["FrameStream", "ScreenHandlers"]
