"""The check of the token of each request, and of its scope, before any part of the request is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from ...access.audit.recorder import NOBODY, Actor, Audit
from ...access.challenges import Challenges, raw_path
from ...access.claims import VerifiedCaller
from ...access.refusals import (
    AuthError,
    PrincipalRevoked,
    RefusalLog,
    ScopeMissing,
    TokenInvalid,
    TokenMalformed,
    TokenMissing,
    is_guessable,
)
from ...access.scopes import ADMIN, READ, OperationScopes
from ...access.verifier import Verifier
from ...sessions.json_codec import loads
from ...sessions.metrics.instruments import Counts
from ...sessions.principals.audit_log import AuditEvent
from ...sessions.principals.policy_watch import PolicyWatch
from ..asgi import replay_messages
from .exchange import read_body

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Authentication:
    """Passes the requests of known callers to `app`, with the caller as the `user` of the scope, and refuses all others.

    Requests to `public` routes pass without a check. A path without a route is refused as the others are.
    """

    def __init__(
        self,
        app: ASGIApp,
        verifier: Verifier,
        challenges: Challenges,
        scopes: OperationScopes,
        public: Sequence[BaseRoute],
        rights: PolicyWatch,
        audit: Audit,
        refused: Counts,
    ) -> None:
        self._app = app
        self._rights = rights
        self._verifier = verifier
        self._challenges = challenges
        self._scopes = scopes
        self._public = public
        self._audit = audit
        self._refused = refused
        self._refusals = RefusalLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._rights.be_current()
        if scope["type"] != "http" or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        user = None
        try:
            token = _read_token(scope)
            user = self._verifier.known(token) or await self._verify(token, scope)
            if ADMIN not in user.scopes:
                receive = await self._check_scope(user, scope, receive)
        except AuthError as error:
            self._note(error, user, scope)
            response = self._challenges.response(error, raw_path(scope))
            await response(scope, receive, send)
            return
        except _TooLarge:
            await Response(status_code=413)(scope, receive, send)
            return
        scope["user"] = user
        await self._app(scope, receive, send)

    def _note(self, error: AuthError, user: VerifiedCaller | None, scope: Scope) -> None:
        self._refused.add(type(error).code)
        principal = NOBODY if user is None else user.principal
        if isinstance(error, PrincipalRevoked):
            principal = error.principal
        address = _address(scope)
        # A token that is invalid is logged with the delay of its network.
        if not isinstance(error, TokenInvalid):
            who = "" if user is None else f" of {principal.words}"
            self._refusals.add(error.kind, address, f"{error.detail}{who}")
        actor = Actor(principal=principal, transport="http", address=address)
        operation = f"{scope['method']} {scope['path'][:128]}"
        self._audit.record(AuditEvent.REFUSAL, actor, operation, type(error).code)

    def _is_public(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == "/mcp" or path.startswith("/s/"):
            return False
        return any(route.matches(scope)[0] != Match.NONE for route in self._public)

    async def _verify(self, token: str, scope: Scope) -> VerifiedCaller:
        address = _address(scope)
        try:
            return await self._verifier.verify(token, address)
        except TokenInvalid as error:
            guessable = is_guessable(token)
            self._verifier.backoff.fail(address, error.kind, error.detail, is_guessable=guessable)
            raise

    async def _check_scope(self, user: VerifiedCaller, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that begins with the body that the check has read.

        Raises:
            ScopeMissing: the caller may not do this.
        """
        needed, messages = READ, []
        if scope["method"] == "POST":
            body, messages = await read_body(receive)
            if body is None and messages[-1]["type"] != "http.disconnect":
                raise _TooLarge
            needed = READ if body is None else self._needed(body)
        if needed not in user.scopes:
            raise ScopeMissing(needed)
        return replay_messages(messages, receive)

    def _needed(self, body: bytes):
        try:
            return self._scopes.required(loads(body))
        except (ValueError, RecursionError):
            # Refused by the code that reads the message, since no parser can read it.
            return READ


class _TooLarge(Exception):
    """Raised when a body is larger than any that is read."""


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


def _read_token(scope: Scope) -> str:
    """Return the bearer token of a request.

    Raises:
        TokenMissing: it has none.
        TokenMalformed: it has several, one in its URL, or one that cannot be a token.
    """
    if b"access_token" in scope["query_string"].lower():
        raise TokenMalformed("a token in the URL")
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) > 1:
        raise TokenMalformed("several Authorization headers")
    scheme, _, token = values[0].decode("latin-1").strip().partition(" ") if values else ("",) * 3
    if scheme.lower() != "bearer":
        raise TokenMissing("no bearer token")
    token = token.strip(" ")
    if not _TOKEN.fullmatch(token):
        raise TokenMalformed("no token after Bearer")
    return token
