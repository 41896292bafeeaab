"""The login of a person: consent, the way to the issuer, and the way back.

Nothing goes to the issuer before the person has agreed, and its answer is accepted only from the browser in which the person
did. Otherwise the consent of one person could be used for the login of another (the confused deputy).
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from mcp.shared.auth import InvalidRedirectUriError
from pydantic import AnyUrl
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...sessions.errors import StoreUnavailable
from ...sessions.one_line import plain_name
from ...sessions.records import Principal
from ..account_issuer import AccountIssuer
from ..login_cookies import AttemptCookies, LoginAttempt, csrf_token
from ..refusals import Backoff, IssuerRefused, TokenInvalid, VerifierUnavailable
from .clients import FacadeClient, LoginRequest, registered_client
from .logins import FacadeLogins, Seal
from .pages import consent_page, problem_page, way_page
from .provider import REQUEST_SECONDS, FacadeProvider

ATTEMPTS: Final = AttemptCookies("__Host-statehold-login-", REQUEST_SECONDS)

logger = logging.getLogger("statehold.server")


class ConsentHandlers:
    """The handlers of the pages of a login. `clock` returns the seconds since 1970."""

    def __init__(
        self,
        provider: FacadeProvider,
        issuer: AccountIssuer,
        logins: FacadeLogins,
        public_url: str,
        secret: str,
        note: Callable[[str, Principal | None, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`note` records the outcome of a login, the person and the address."""
        self._provider = provider
        self._issuer = issuer
        self._logins = logins
        self._public_url = public_url
        self._attempts = Seal(secret, "logins")
        self._note = note
        self._clock = clock
        self._backoff = Backoff()

    async def show(self, request: Request) -> Response:
        """Ask for consent."""
        sealed = request.query_params.get("request", "")
        try:
            login, client = await self._open(sealed)
        except _LoginLost:
            return _lost()
        value = secrets.token_urlsafe(32)
        response = consent_page(client, login, self._issuer.issuer, sealed, csrf_token(value))
        ATTEMPTS.make_room(request, response)
        ATTEMPTS.keep(response, sealed, value)
        return response

    async def decide(self, request: Request) -> Response:
        """Take the decision of a person, once."""
        form = await request.form()
        sealed, csrf = str(form.get("request", "")), str(form.get("csrf", ""))
        value = ATTEMPTS.value(request, sealed)
        if not value or not hmac.compare_digest(csrf.encode(), csrf_token(value).encode()):
            return _lost()
        try:
            login, _ = await self._open(sealed)
            if form.get("decision") == "allow":
                response = await self._forward(login)
            else:
                url = self._answer(login, error="access_denied")
                response = way_page(url, "Back to the program")
        except _LoginLost:
            return _lost()
        except VerifierUnavailable as error:
            return _unavailable(error)
        ATTEMPTS.delete(response, sealed)
        return response

    async def finish(self, request: Request) -> Response:
        """Take the answer of the issuer, and send a code to the client."""
        address = request.client.host if request.client else ""
        state = request.query_params.get("state", "")
        value = ATTEMPTS.value(request, state)
        document = self._attempts.open(value, self._clock(), seconds=REQUEST_SECONDS)
        if document is None:
            self._refuse("this browser began no such login", address)
            return _lost()
        attempt = LoginAttempt(document["secret"])
        login = LoginRequest.model_validate(document["request"])
        try:
            response = await self._log_in(request, attempt, login, address)
        except (TokenInvalid, IssuerRefused) as error:
            self._refuse(str(error), address)
            response = problem_page(
                "You are not logged in",
                "The identity provider did not confirm the login. Start it again in your program.",
                403,
            )
        except (VerifierUnavailable, StoreUnavailable) as error:
            response = _unavailable(error)
        ATTEMPTS.delete(response, state)
        return response

    async def _log_in(
        self, request: Request, attempt: LoginAttempt, login: LoginRequest, address: str
    ) -> Response:
        await self._backoff.hold(address)
        person = await self._issuer.person(request.query_params, attempt, self._clock(), address)
        principal = person.principal.model_copy(update={"client_id": login.client_id[:255]})
        answer = self._answer(login, code=await self._logins.open(person, login, self._clock()))
        logger.info(
            "%s logged in with the client %s from %s",
            principal.words,
            _client_words(login.client_id),
            address or "?",
        )
        self._note("ok", principal, address)
        headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
        return RedirectResponse(answer, 302, headers)

    async def _open(self, sealed: str) -> tuple[LoginRequest, FacadeClient]:
        """Return a request and its client, as they are now.

        Raises:
            _LoginLost: the request is too old, or its client has changed.
        """
        login = self._provider.open_request(sealed)
        client = None if login is None else await self._provider.get_client(login.client_id)
        if login is None or client is None:
            raise _LoginLost
        try:
            client.validate_redirect_uri(AnyUrl(login.redirect_uri))
        except InvalidRedirectUriError:
            raise _LoginLost from None
        return login, client

    async def _forward(self, login: LoginRequest) -> Response:
        attempt = LoginAttempt.begin()
        response = way_page(await self._issuer.authorization_url(attempt), "To your login")
        document = {"secret": attempt.secret, "request": login.model_dump()}
        value = self._attempts.seal(document, self._clock())
        ATTEMPTS.keep(response, attempt.state, value)
        return response

    def _answer(self, login: LoginRequest, **parameters: str) -> str:
        """Return the URL at which a client gets the answer to its request (RFC 9207: with the issuer)."""
        state = {} if login.state is None else {"state": login.state}
        query = urlencode({**parameters, **state, "iss": self._public_url})
        return f"{login.redirect_uri}{'&' if '?' in login.redirect_uri else '?'}{query}"

    def _refuse(self, reason: str, address: str) -> None:
        self._backoff.fail(address, "wrong login", f"({reason}) at /callback")
        self._note("login_failed", None, address)


class _LoginLost(Exception):
    """Raised when a request for a login cannot be used any more."""


def _lost() -> Response:
    return problem_page(
        "This login cannot go on",
        "It was begun in another browser, was used, or is too old. Start it again in your program.",
    )


def _unavailable(error: Exception) -> Response:
    logger.warning("a login cannot go on: %s", error)
    return problem_page("The login is not available now", "Try again in a moment.", 503)


def _client_words(client_id: str) -> str:
    """Return a client for the log: a registered one by the name that it gave itself, since its id holds its metadata."""
    client = registered_client(client_id)
    return repr(plain_name(client.client_name or "")) if client else client_id[:100]
