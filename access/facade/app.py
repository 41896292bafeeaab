"""The authorization server of one process: its routes, and the check of its access tokens."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlencode, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.routes import ID_JAG_GRANT_PROFILE
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import Message

from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.principals.audit_log import AuditEvent
from ...sessions.records import Principal
from ...tools.outbound import allows_loopback
from ..account_issuer import AccountIssuer
from ..audit.recorder import NOBODY, Actor, Audit
from ..challenges import SERVER_METADATA
from ..claims import ClaimChecks, VerifiedCaller
from ..config.auth import AuthSettings, FacadeSettings
from ..scopes import SCOPES
from .clients import ClientDocuments, sort_redirect_uris
from .consent import ConsentHandlers
from .logins import ACCESS_PREFIX, FacadeLogins
from .pages import problem_page
from .provider import NO_RESOURCE, FacadeProvider, IdentityAssertions, TokenClients

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "*",
    "cache-control": "max-age=300",
}

BODY_BYTES: Final = 64 * 1024
_NO_REGISTRATION: Final = (
    "This server registers no clients: use a client with a metadata document, or have its operator set "
    "auth.facade.registration = true."
)
_NO_STORE: Final = {"cache-control": "no-store"}
_MAX_QUOTED: Final = 8
"""The length from which a text of a request is not shown in an answer to it, also where no quotes are around it."""


class FacadeMetadata:
    """The document about the server at `public_url`."""

    def __init__(self, settings: FacadeSettings, public_url: str) -> None:
        self._rest = {"", "/", urlsplit(public_url).path}
        self._document = _document(settings, public_url)

    def routes(self) -> list[Route]:
        return [
            Route(
                f"{SERVER_METADATA}{{rest:path}}", endpoint=self._answer, methods=["GET", "OPTIONS"]
            )
        ]

    async def _answer(self, request: Request) -> Response:
        if request.path_params["rest"] not in self._rest:
            return JSONResponse({"error": "not_found"}, 404, _HEADERS)
        return JSONResponse(self._document, 200, _HEADERS)


def _document(settings: FacadeSettings, public_url: str) -> JSON:
    secret_methods = ["client_secret_post"] if settings.clients else []
    methods = ["none", *secret_methods]
    grants = ["authorization_code", "refresh_token"]
    document: JSON = {
        "issuer": public_url,
        "authorization_endpoint": f"{public_url}/authorize",
        "token_endpoint": f"{public_url}/token",
        "revocation_endpoint": f"{public_url}/revoke",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": grants,
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
    }
    if settings.registration:
        document["registration_endpoint"] = f"{public_url}/register"
    if settings.clients:
        grants.append(JWT_BEARER_GRANT_TYPE)
        document["authorization_grant_profiles_supported"] = [ID_JAG_GRANT_PROFILE]
    return document


def _record_login(audit: Audit, outcome: str, person: Principal | None, address: str) -> None:
    # A refused stranger is no login.
    event = AuditEvent.REFUSAL if person is None else AuditEvent.LOGIN
    actor = Actor(principal=person or NOBODY, transport="http", address=address)
    audit.record(event, actor, "authorize", outcome)


class Facade:
    """The authorization server over the logins of a store. It lives as long as the process.

    `audit` records the logins.
    """

    def __init__(
        self,
        settings: AuthSettings,
        public_url: str,
        store: SQLStore,
        audit: Audit,
    ) -> None:
        note = partial(_record_login, audit)
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
        documents = ClientDocuments(allow_loopback=allows_loopback(public_url))
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

    async def caller(self, token: str, now: float) -> VerifiedCaller:
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
                f"'{text}'" in reason or (len(text) >= _MAX_QUOTED and text in reason)
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
