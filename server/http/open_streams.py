"""The open requests of clients: streams end when the process stops, or when the token of the client does."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...access.challenges import Challenges, PublicUrls, raw_path
from ...access.claims import VerifiedCaller
from ...access.refusals import TokenInvalid, VerifierUnavailable
from ...access.verifier import Verifier

_METHOD: Final = b"mcp-method"
_LISTEN: Final = b"subscriptions/listen"


class OpenStreams:
    """The requests that the SDK answers. Its streams last until the client leaves: GET, and `subscriptions/listen`.

    Without that, each stream would keep uvicorn from stopping. To the client, the stream ends normally.
    """

    def __init__(self, challenges: Challenges | None = None) -> None:
        """`challenges` make the response to a request that ends before its response began."""
        self._challenges = challenges or Challenges(PublicUrls(""))
        self._scopes: dict[anyio.CancelScope, Scope] = {}
        """The scope of each request."""

    def __len__(self) -> int:
        return len(self._scopes)

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose requests can be ended."""
        return _Requests(app, self)

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for a request until it, or this object, ends it."""
        is_started = is_finished = False

        async def send_and_track(message: Message) -> None:
            nonlocal is_started, is_finished
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)
            is_finished = message["type"] == "http.response.body" and not message.get("more_body")

        with anyio.CancelScope() as request:
            self._scopes[request] = scope
            try:
                await app(scope, receive, send_and_track)
            finally:
                self._scopes.pop(request, None)
        if request.cancelled_caught and not is_started:
            refusal = self._challenges.response(TokenInvalid(""), raw_path(scope))
            await refusal(scope, receive, send)
        elif request.cancelled_caught and not is_finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """End the streams of GET requests. Those of `subscriptions/listen` end with an answer of the server."""
        for request, scope in list(self._scopes.items()):
            if scope["method"] == "GET":
                request.cancel()

    def end_of(self, revoked: Container[str]) -> None:
        """End the requests of the principals with these keys, streams and others."""
        for request, scope in list(self._scopes.items()):
            user = _user_of(scope)
            if user is not None and user.principal.key in revoked:
                request.cancel()

    def end_without_token(self, is_valid: Callable[[str], bool]) -> None:
        """End the streams whose static token is valid no more. Those for another node have none: that node ends them."""
        for stream, user, token in self._streams():
            if user.expires_at is None and not is_valid(token):
                stream.cancel()

    async def end_refused(self, verifier: Verifier) -> None:
        """End the streams whose access token would be refused now. While an issuer does not answer, its tokens go on."""
        async with anyio.create_task_group() as tasks:
            for stream, user, token in self._streams():
                if user.expires_at is not None and verifier.known(token) is None:
                    tasks.start_soon(_end_if_refused, verifier, stream, token)

    def _streams(self) -> list[tuple[anyio.CancelScope, VerifiedCaller, str]]:
        """Return the streams that came with a token, with their callers."""
        return [
            (request, user, token)
            for request, scope in self._scopes.items()
            if _is_stream(scope)
            and (user := _user_of(scope)) is not None
            and (token := _token_of(scope)) is not None
        ]


async def _end_if_refused(verifier: Verifier, stream: anyio.CancelScope, token: str) -> None:
    try:
        await verifier.verify(token)
    except TokenInvalid:
        stream.cancel()
    except VerifierUnavailable:
        pass


class _Requests:
    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._streams.run(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _user_of(scope: Scope) -> VerifiedCaller | None:
    user: object = scope.get("user")
    return user if isinstance(user, VerifiedCaller) else None


def _token_of(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return value.decode("latin-1").partition(" ")[2].strip()
    return None


def _is_stream(scope: Scope) -> bool:
    return scope["method"] == "GET" or (_METHOD, _LISTEN) in scope["headers"]
