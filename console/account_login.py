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

from ..access.account_issuer import AccountIssuer
from ..access.audit.recorder import Actor, Audit
from ..access.claims import ClaimChecks, VerifiedCaller
from ..access.config.auth import AuthSettings
from ..access.login_cookies import AttemptCookies, LoginAttempt, set_cookie
from ..access.refusals import (
    Backoff,
    IssuerRefused,
    PrincipalRevoked,
    TokenInvalid,
    VerifierUnavailable,
)
from ..sessions.errors import StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.principals.audit_log import AuditEvent
from .logins import LOGIN, Logins, stranger, user_of_caller

BEGIN: Final = "/login"
CALLBACK: Final = "/callback"
ATTEMPT_SECONDS: Final = 600
"""Seconds that a person has to log in at the issuer."""
ATTEMPTS: Final = AttemptCookies("__Host-statehold-attempt-", ATTEMPT_SECONDS)

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
        ATTEMPTS.make_room(request, response)
        ATTEMPTS.keep(response, attempt.state, attempt.secret)
        return response

    async def _finish(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        state = request.query_params.get("state", "")
        secret = ATTEMPTS.value(request, state)
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
        ATTEMPTS.delete(response, state)
        return response

    async def _log_in(self, request: Request, secret: str, address: str) -> Response:
        if not secret:
            raise TokenInvalid("this browser began no login")
        await self._backoff.hold(address)
        attempt = LoginAttempt(secret)
        now = self._logins.clock()
        person = await self._issuer.person(request.query_params, attempt, now, address)
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
