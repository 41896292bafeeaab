"""The authorization server of one process: its routes, and the check of its access tokens."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlencode, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import Message

from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON
from ...tools.browser.egress.addresses import is_loopback_host
from ..account_issuer import AccountIssuer
from ..claims import ClaimChecks
from ..config.auth import AuthSettings
from .assertions import IdentityAssertions
from .client_documents import ClientDocuments
from .clients import sort_redirect_uris
from .consent import ConsentHandlers
from .logins import ACCESS_PREFIX, FacadeLogins
from .metadata import FacadeMetadata
from .pages import problem_page
from .provider import NO_RESOURCE, FacadeProvider, TokenClients

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

BODY_BYTES: Final = 64 * 1024
_NO_REGISTRATION: Final = (
    "This server registers no clients: use a client with a metadata document, or have its operator set "
    "auth.facade.registration = true."
)
_NO_STORE: Final = {"cache-control": "no-store"}
_QUOTED: Final = 8
"""The length from which a text of a request is not shown in an answer to it, also where no quotes are around it."""


class Facade:
    """The authorization server over the logins of a store. It lives as long as the process.

    `note` records the outcome of a login, the person and the address.
    """

    def __init__(
        self,
        settings: AuthSettings,
        public_url: str,
        store: SQLStore,
        note: Callable[[str, AccessToken | None, str], None],
    ) -> None:
        facade, settings_of_issuer = settings.facade, settings.facade_issuer
        assert facade.client_secret is not None
        assert settings_of_issuer is not None
        secret = facade.client_secret.get_secret_value()
        checks = ClaimChecks(settings)
        issuer = AccountIssuer(
            issuer=settings_of_issuer,
            client=facade,
            checks=checks,
            redirect_uri=f"{public_url}/callback",
        )
        self._logins = FacadeLogins(store, facade, checks, secret)
        documents = ClientDocuments(allow_loopback=_is_on_loopback(public_url))
        assertions = IdentityAssertions(
            issuer=settings_of_issuer,
            keys=issuer.keys,
            checks=checks,
            logins=self._logins,
            audience=public_url,
        )
        self._provider = FacadeProvider(
            settings=settings,
            public_url=public_url,
            secret=secret,
            documents=documents,
            logins=self._logins,
            assertions=assertions,
            note=note,
        )
        self._consent = ConsentHandlers(
            provider=self._provider,
            issuer=issuer,
            logins=self._logins,
            public_url=public_url,
            secret=secret,
            note=note,
        )
        self._metadata = FacadeMetadata(facade, public_url)
        self._public_url = public_url
        self._has_registration = facade.registration
        self._authenticator = ClientAuthenticator(
            cast("FacadeProvider", TokenClients(self._provider))
        )
        self._authorization = AuthorizationHandler(self._provider)
        self._registration = RegistrationHandler(
            self._provider, ClientRegistrationOptions(enabled=facade.registration)
        )
        self._token = TokenHandler(
            self._provider, self._authenticator, identity_assertion_enabled=bool(facade.clients)
        )

    def accepts(self, token: str) -> bool:
        """Whether a token has the form of those of this server."""
        return token.startswith(ACCESS_PREFIX)

    async def caller(self, token: str, now: float) -> AccessToken:
        """Return the caller of a token that accepts() takes.

        Raises:
            TokenInvalid: the token is wrong or has expired, or its login has ended.
            VerifierUnavailable: the store cannot be read.
        """
        return await self._logins.caller(token, now)

    def routes(self) -> list[BaseRoute]:
        """Return the routes, for an HTTP application that checks Host and Origin."""
        return [
            *self._metadata.routes(),
            _route("/authorize", self._authorize, "GET"),
            _route("/consent", self._consent.show, "GET"),
            _route("/consent", self._consent.decide, "POST"),
            _route("/callback", self._consent.finish, "GET"),
            _route("/token", self._exchange, "POST"),
            _route("/revoke", self._revoke, "POST"),
            _route("/register", self._register, "POST"),
        ]

    async def _authorize(self, request: Request) -> Response:
        response = await self._authorization.handle(request)
        location = response.headers.get("location")
        if location is None:
            reason: str = json.loads(bytes(response.body)).get("error_description") or ""
            # The texts of a request come from anyone, and the page speaks for this server.
            if any(
                f"'{text}'" in reason or (len(text) >= _QUOTED and text in reason)
                for text in request.query_params.values()
            ):
                reason = "This server does not know the program, or cannot read its document."
            return problem_page("The program asks in a wrong way", reason)
        if not location.startswith(f"{self._public_url}/consent?"):
            # RFC 9207: an error names the issuer, too.
            response.headers["location"] = f"{location}&{urlencode({'iss': self._public_url})}"
        return response

    async def _exchange(self, request: Request) -> Response:
        resources = (await request.form()).getlist("resource")
        if not all(self._provider.has_resource(str(resource)) for resource in resources):
            content = {"error": "invalid_target", "error_description": NO_RESOURCE}
            return JSONResponse(content, 400, _NO_STORE)
        return await self._token.handle(request)

    async def _register(self, request: Request) -> Response:
        """Register a public client with its acceptable redirect URIs (RFC 7591, 2: the server may replace the metadata)."""
        if not self._has_registration:
            # Clients register where the metadata name no other place, and show the answer to their user.
            content = {"error": "access_denied", "error_description": _NO_REGISTRATION}
            return JSONResponse(content, 403, _NO_STORE)
        try:
            document = json.loads(await request.body())
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            members = cast("JSON", document)
            members["token_endpoint_auth_method"] = "none"
            good, refusals = sort_redirect_uris(members.get("redirect_uris"))
            if refusals and not good:
                content = {
                    "error": "invalid_redirect_uri",
                    "error_description": "; ".join(refusals),
                }
                return JSONResponse(content, 400, _NO_STORE)
            if refusals:
                members["redirect_uris"] = good
        body = json.dumps(document).encode()

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return await self._registration.handle(Request(request.scope, receive))

    async def _revoke(self, request: Request) -> Response:
        # The handler of the SDK refuses public clients, which have no client_secret.
        try:
            client = await self._authenticator.authenticate_request(request)
        except AuthenticationError:
            return JSONResponse({"error": "invalid_client"}, 401, _NO_STORE)
        token = str((await request.form()).get("token", ""))
        if not token:
            return JSONResponse({"error": "invalid_request"}, 400, _NO_STORE)
        await self._logins.end(token, client.client_id, self._provider.now())
        return Response(status_code=200, headers=_NO_STORE)


def _route(path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str) -> BaseRoute:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except StoreUnavailable:
            return JSONResponse({"error": "temporarily_unavailable"}, 503, _NO_STORE)

    app = RequestBodyLimitMiddleware(request_response(answer), BODY_BYTES)
    route = Route(path, endpoint=app, methods=[method])
    # A HEAD would use up the code of an answer.
    route.methods = {method}
    return route


def _is_on_loopback(public_url: str) -> bool:
    return is_loopback_host(urlsplit(public_url).hostname or "")
