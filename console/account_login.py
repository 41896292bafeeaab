"""The login with an account: the page sends the browser to the issuer, which sends it back to the callback."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..access.account_issuer import AccountIssuer, LoginAttempt, cookie_of, surplus_cookies
from ..access.audit.recorder import Actor, Audit
from ..access.claims import ClaimChecks, VerifiedCaller
from ..access.config.auth import AuthSettings
from ..access.refusals import (
    Backoff,
    IssuerRefused,
    PrincipalRevoked,
    TokenInvalid,
    VerifierUnavailable,
)
from ..sessions.audit.entry import AuditEvent
from ..sessions.errors import StoreUnavailable
from ..sessions.json_codec import JSON
from .logins import ATTEMPT, LOGIN, Logins, set_cookie, stranger, user_of_caller

BEGIN: Final = "/login"
CALLBACK: Final = "/callback"
ATTEMPT_SECONDS: Final = 600
"""Seconds that a person has to log in at the issuer."""

logger = logging.getLogger("statehold.server")


class AccountLogin:
    """The logins with accounts of one console. `page` is the URL at which browsers reach it.

    A failed login leads to the page, with its code in the fragment of the address.
    """

    def __init__(
        self,
        settings: AuthSettings,
        page: str,
        logins: Logins,
        backoff: Backoff,
        audit: Audit,
        record_caller: Callable[[VerifiedCaller], None],
    ) -> None:
        self._page = page
        issuer = settings.console_issuer
        assert issuer is not None
        self._issuer = AccountIssuer(
            issuer=issuer,
            client=settings.console,
            checks=ClaimChecks(settings),
            redirect_uri=f"{page}{CALLBACK}",
        )
        self._name = settings.console.name or urlsplit(self._issuer.issuer).netloc
        self._logins = logins
        self._backoff = backoff
        self._audit = audit
        self._record_caller = record_caller

    def routes(self) -> list[BaseRoute]:
        return [
            Route(BEGIN, endpoint=self._begin, methods=["GET"]),
            Route(CALLBACK, endpoint=self._finish, methods=["GET"]),
        ]

    def describe(self) -> JSON:
        """Return the name of the issuer, and the URL at which a login begins: the cookie is one of its host."""
        return {"name": self._name, "url": f"{self._page}{BEGIN}"}

    async def _begin(self, request: Request) -> Response:
        attempt = LoginAttempt.begin()
        try:
            url = await self._issuer.authorization_url(attempt)
        except VerifierUnavailable as error:
            logger.warning("console: the issuer of accounts: %s", error)
            return _to_page("service_unavailable")
        response = RedirectResponse(url, 303)
        for name in surplus_cookies(request.cookies, ATTEMPT):
            set_cookie(response, name, "", 0, samesite="lax")
        name = cookie_of(ATTEMPT, attempt.state)
        assert name is not None
        # The browser comes back from another site, with which it would not send a strict cookie.
        set_cookie(response, name, attempt.secret, ATTEMPT_SECONDS, samesite="lax")
        return response

    async def _finish(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        name = cookie_of(ATTEMPT, request.query_params.get("state", ""))
        secret = "" if name is None else request.cookies.get(name, "")
        try:
            response = await self._log_in(request, secret, address)
        except PrincipalRevoked as error:
            self._record(stranger(address, error.principal), error.code)
            self._backoff.fail(address, error.kind, f"{error.detail} at the console")
            response = _to_page("revoked")
        except (TokenInvalid, IssuerRefused) as error:
            self._record(stranger(address), "login_failed")
            self._backoff.fail(address, "wrong login", f"({error}) at the console")
            response = _to_page("login_failed")
        except VerifierUnavailable as error:
            logger.warning("console: the issuer of accounts: %s", error)
            response = _to_page("service_unavailable")
        except StoreUnavailable:
            response = _to_page("store_unavailable")
        if name is not None:
            set_cookie(response, name, "", 0, samesite="lax")
        return response

    async def _log_in(self, request: Request, secret: str, address: str) -> Response:
        if not secret:
            raise TokenInvalid("this browser began no login")
        await self._backoff.hold(address)
        attempt = LoginAttempt(secret)
        code = await self._issuer.code(request.query_params, attempt)
        person = await self._issuer.person(code, attempt, self._logins.clock(), address)
        user = user_of_caller(person)
        digest = hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
        # Only now: anybody can invent an answer, and must not fill the store with used ones.
        if not await self._logins.use_attempt(digest, user, ATTEMPT_SECONDS):
            raise TokenInvalid("the answer was used")
        if person.groups:
            # Many issuers name groups in access tokens only: those are not forgotten then.
            self._record_caller(person)
        cookie, login = await self._logins.open(user)
        assert user.principal is not None
        logger.info("console: %s logged in from %s", user.principal.words, address or "?")
        self._record(user.actor(address), "ok")
        response = RedirectResponse("./", 303)
        set_cookie(response, LOGIN, cookie, login.expires_at - self._logins.clock())
        return response

    def _record(self, actor: Actor, outcome: str) -> None:
        self._audit.record(AuditEvent.LOGIN, actor, "callback", outcome)


def _to_page(failure: str) -> Response:
    return RedirectResponse(f"./#failed={failure}", 303)
