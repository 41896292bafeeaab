"""Login and logout: a code or a token is exchanged for a cookie.

The login of an access token ends with it, and may change sessions only with the scope CONTROL.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response

from ..access.audit.recorder import NOBODY, Actor, Audit
from ..access.login_cookies import set_cookie
from ..access.refusals import (
    AuthError,
    Backoff,
    PrincipalRevoked,
    RefusalLog,
    ScopeMissing,
    TokenInvalid,
    VerifierUnavailable,
    is_guessable,
)
from ..access.scopes import READ
from ..access.tokens import digest_of
from ..access.verifier import Verifier
from ..server.config.sections import ServerSettings
from ..sessions.errors import InvalidArgument
from ..sessions.json_codec import JSON
from ..sessions.principals.audit_log import AuditEvent
from ..sessions.records import Principal
from ..sessions.times import timestamp
from .logins import GUEST, LOGIN, Login, Logins, stranger, user_of_caller
from .requests import LoginBody, LogoutBody
from .routes import ApiCall, ApiError, json_response, not_allowed, route
from .sharing import LinkJournal

if TYPE_CHECKING:
    from .account_login import AccountLogin

logger = logging.getLogger("statehold.server")


class LoginHandlers:
    """The handlers of logins of one process.

    `browsers` are the services that have a live picture, and `account` is the login with accounts, if there is one.
    """

    def __init__(
        self,
        logins: Logins,
        verifier: Verifier | None,
        backoff: Backoff,
        links: LinkJournal,
        audit: Audit,
        server: ServerSettings,
        browsers: Sequence[str] = (),
        account: AccountLogin | None = None,
    ) -> None:
        self._logins = logins
        self._verifier = verifier
        self._backoff = backoff
        self._links = links
        self._audit = audit
        self._browsers = list(browsers)
        self._refusals = RefusalLog()
        self._account = account
        self._server = server

    @route("GET", "/login", "Show the ways to log in", audience="anyone")
    async def login_ways(self, call: ApiCall) -> Response:
        account = None if self._account is None else self._account.describe()
        return json_response({"account": account, "token": self._verifier is not None})

    @route("POST", "/login", "Exchange a code or a token for a cookie", audience="anyone")
    async def login(self, call: ApiCall, body: LoginBody) -> Response:
        if (body.code is None) == (body.token is None):
            raise InvalidArgument("body: give either code or token.")
        if body.look and body.code is not None:
            return await self._look(body.code, call)
        opened, refusal = None, ("wrong code", "")
        outcome, actor = "login_failed", stranger(call.address)
        try:
            opened = await self._open(body, call.address)
        except PrincipalRevoked as error:
            refusal, outcome = (error.kind, error.detail), error.code
            actor = stranger(call.address, error.principal)
        except TokenInvalid as error:
            refusal = error.kind, error.detail
        if opened is None:
            self._record(actor, "login", outcome)
            guessable = body.token is None or is_guessable(body.token)
            raise self._refusal(*refusal, call, is_guessable=guessable)
        cookie, login = opened
        try:
            await self._links.record_opened(login)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._logins.end(login)
            raise
        principal = login.user.principal
        name = login.user.name if principal is None else principal.words
        logger.info("console: %s logged in from %s", name, call.address or "?")
        self._record(login.user.actor(call.address), "login")
        if login.user.rights == "embed":
            # No cookie: in a frame, a browser would send it without being asked.
            return json_response({**self._describe(login), "secret": cookie})
        response = json_response(self._describe(login))
        name = GUEST if login.user.is_guest else LOGIN
        set_cookie(response, name, cookie, login.expires_at - self._logins.clock())
        return response

    async def _look(self, code: str, call: ApiCall) -> Response:
        """Describe the login of a code, for the question whether to open it beside a login."""
        await self._backoff.hold(call.address)
        user = await self._logins.look(code)
        if user is None:
            raise self._refusal("wrong code", "", call)
        document = {"name": user.name, "rights": user.rights, "session_id": user.session_id}
        return json_response({**document, "is_beside": call.login is not None})

    def _refusal(
        self, kind: str, detail: str, call: ApiCall, *, is_guessable: bool = True
    ) -> ApiError:
        """Log a wrong code or token, which delays the next one of its network, and return the error."""
        detail = f"{detail} at the console".lstrip()
        self._backoff.fail(call.address, kind, detail, is_guessable=is_guessable)
        return ApiError(
            "login_failed",
            "The code or token is wrong, or the code was used or is too old.",
            "Run `statehold console` again, or check the token.",
        )

    async def _open(self, body: LoginBody, address: str) -> tuple[str, Login] | None:
        """Return the cookie and the login of a code or a token, None for a wrong code.

        Raises:
            TokenInvalid: the token is wrong.
            ApiError: the token has no scope, or cannot be checked now.
        """
        if body.code is not None:
            await self._backoff.hold(address)
            return await self._logins.exchange(body.code)
        text = body.token or ""
        if self._verifier is None:
            raise TokenInvalid("")
        try:
            caller = await self._verifier.verify(text, address)
        except VerifierUnavailable as error:
            self._record_refusal(error, None, address)
            raise ApiError(
                "service_unavailable", "The token cannot be checked now.", "Try again later."
            ) from None
        user = user_of_caller(caller)
        if READ not in caller.scopes:
            self._record_refusal(ScopeMissing(READ), user.principal, address)
            raise not_allowed(f"The token does not have the scope {READ}.")
        if caller.expires_at is not None:
            return await self._logins.open(user, ends_by=caller.expires_at)
        return await self._logins.open(user, digest_of(text).hex())

    def _record_refusal(self, error: AuthError, principal: Principal | None, address: str) -> None:
        who = "" if principal is None else f" of {principal.words}"
        self._refusals.add(error.kind, address, f"{error.detail}{who} at the console")
        self._record(stranger(address, principal or NOBODY), "login", error.code)

    @route("POST", "/logout", "End this login", audience="guest")
    async def logout(self, call: ApiCall, body: LogoutBody) -> Response:
        login = call.require_login()
        await self._logins.end(login)
        self._record(login.user.actor(call.address), "logout")
        if body.everywhere:
            await self._logins.end_all(login.user)
            logger.info("console: %s logged out everywhere", login.user.name)
        response = json_response({})
        # The link that was opened beside the login ends with it.
        guest = await self._logins.find(call.request.cookies.get(GUEST, ""))
        if guest is not None:
            await self._logins.end(guest)
        for name in (LOGIN, GUEST):
            set_cookie(response, name, "", 0)
        return response

    def _record(self, actor: Actor, operation: str, outcome: str = "ok") -> None:
        self._audit.record(AuditEvent.LOGIN, actor, operation, outcome)

    @route("GET", "/me", "Show this login, with its CSRF token", audience="guest")
    async def me(self, call: ApiCall) -> Response:
        return json_response(self._describe(call.require_login()))

    def _describe(self, login: Login) -> JSON:
        user = login.user
        return {
            "csrf": login.csrf,
            "name": user.name,
            "principal": None if user.principal is None else user.principal.subject,
            "rights": user.rights,
            "is_machine_user": user.is_machine_user,
            "role": user.role,
            "session_id": user.session_id,
            "can_share": self._verifier is not None,
            "browsers": self._browsers,
            "public_url": self._server.public_url,
            "can_embed": bool(self._server.embed_origins),
            "expires_at": timestamp(login.expires_at),
        }
