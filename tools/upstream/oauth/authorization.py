"""Access tokens of a server that asks for OAuth: the login of a person, and the renewal of its tokens.

Both are steps of the SDK's client: it finds the authorization server, registers, and checks what it gets (RFC 8414, 9207,
9728; SEP-2350, 2352). Here are its requests, which go to the server of the service and to public addresses only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import httpx2
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from pydantic import AnyUrl, BaseModel

from ....sessions.clock import SystemClock
from ....sessions.errors import ServiceUnavailable
from ....sessions.json_codec import JSON
from ...browser.egress.addresses import is_loopback_host
from ...browser.egress.resolver import Resolver
from ...http_client import http_options, read_body, server_of
from ...logins.masks import Masks, hide
from ...outbound import UNREACHABLE, DestinationRefused, OutboundClient
from ..config import LoginSettings

# The SDK logs failures with what a server answered, which may hold secrets. All of them are raised, too.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)

CLIENT_NAME: Final = "Statehold"
CLIENT_CREDENTIALS: Final = "client_credentials"
ANSWER_BYTES: Final = 1 << 20
SECONDS: Final = 20.0
"""Seconds of one request to the server of the service."""
_VERSION: Final = "2025-11-25"
"""A revision with resource indicators (RFC 8707)."""
_READ_HEADERS: Final = ("content-type", "location", "www-authenticate")
_SENT_HEADERS: Final = ("accept", "authorization", "content-type", "mcp-protocol-version")
_REFUSALS: Final = ("invalid_grant", "invalid_client", "unauthorized_client")
"""The errors after which a login cannot be renewed (RFC 6749, section 5.2); others may come of a failure, or a proxy."""
_LONGEST: Final = 10 * 365 * 86400
"""Seconds of the longest life of an access token: times far from now cannot be computed."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
"""A token that a header can hold."""
_EXPIRED: Final = 1.0
"""The time of an access token that ended long ago."""


class AuthorizationFailed(ServiceUnavailable):
    """Raised when a server, or its authorization server, gives no access token. The message has no secret."""


class LoginDocument(BaseModel):
    """The value of a login. Secret."""

    site: str
    """The address of the service."""
    client: OAuthClientInformationFull
    tokens: OAuthToken
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    @property
    def can_renew(self) -> bool:
        return self.tokens.refresh_token is not None or self.is_of_client

    @property
    def is_of_client(self) -> bool:
        """Whether the client logged itself in, without a person."""
        return self.client.grant_types == [CLIENT_CREDENTIALS]

    @property
    def secrets(self) -> list[str]:
        tokens = self.tokens
        texts = (tokens.access_token, tokens.refresh_token, self.client.client_secret)
        return list(filter(None, texts))


@dataclass
class _Storage:
    """The knowledge of the SDK's client about one login, with new tokens if it got some."""

    client: OAuthClientInformationFull | None = None
    tokens: OAuthToken | None = None
    new_tokens: OAuthToken | None = None
    own_issuer: str | None = None
    """The issuer as the authorization server names itself, if the service names it with another slash."""
    named_issuer: str | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.new_tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@dataclass(frozen=True, slots=True)
class Person:
    """A person who logs in: how an address is shown to them, and the address that they come back to."""

    redirect_uri: str
    show: Callable[[str], Awaitable[None]]
    """Shows the address of the authorization server."""
    wait: Callable[[], Awaitable[AuthorizationCodeResult]]
    """Returns what the person brings back."""


async def log_in(site: str, settings: LoginSettings, person: Person | None) -> LoginDocument:
    """Have a person log in at the server of a service, or without one the client with its own credentials (SEP-1046).

    It takes as long as a person does; cancelling it leaves nothing behind.

    Raises:
        AuthorizationFailed: the server asks for no login, or the login failed.
    """
    storage = _Storage()
    async with _sender(site, storage, settings.client_secret) as send:
        provider = _provider(site, storage, settings, person)
        refusal = await send(_probe(site))
        if refusal.status_code not in (401, 403):
            raise AuthorizationFailed(
                f"{server_of(site)} asks for no login (HTTP {refusal.status_code})."
            )
        if settings.scope is not None:
            # The SDK takes the first scope of the challenge before all others.
            challenge = refusal.headers.get("www-authenticate", "Bearer")
            challenge = f'Bearer scope="{settings.scope}", {challenge.partition(" ")[2]}'
            refusal.headers["www-authenticate"] = challenge
        await _drive(provider, storage, _probe(site), send, refusal)
    return _document(site, provider, storage)


async def renew(document: LoginDocument, settings: LoginSettings) -> LoginDocument | None:
    """Return a login with new tokens, None if the authorization server refuses to give some: its person has to log in again.

    Raises:
        AuthorizationFailed: the authorization server cannot be asked now.
    """
    if document.is_of_client:
        return await log_in(document.site, settings, None)
    storage = _Storage(document.client, document.tokens)
    async with _sender(document.site, storage) as send:
        provider = _restored(document, storage)
        provider.context.token_expiry_time = _EXPIRED
        last = await _drive(provider, storage, _probe(document.site), send, None)
    if storage.new_tokens is not None:
        return _document(document.site, provider, storage)
    if (
        last is not None
        and last.status_code in (400, 401)
        and _members(last).get("error") in _REFUSALS
    ):
        return None
    status = "no answer" if last is None else f"HTTP {last.status_code}"
    raise AuthorizationFailed(f"The authorization server renews no token now ({status}).")


async def revoke(document: LoginDocument) -> None:
    """Have the authorization server end the tokens of a login (RFC 7009).

    Raises:
        AuthorizationFailed: it did not, or names no endpoint for that.
    """
    endpoint = None if document.metadata is None else document.metadata.revocation_endpoint
    if endpoint is None:
        raise AuthorizationFailed("The authorization server has no revocation endpoint.")
    storage, tokens = _Storage(document.client), document.tokens
    context = _restored(document, storage).context
    context.client_info = document.client
    async with _sender(document.site, storage) as send:
        for hint in ("refresh_token", "access_token"):
            if token := getattr(tokens, hint):
                form = {"token": token, "token_type_hint": hint}
                form["client_id"] = document.client.client_id
                form, headers = context.prepare_token_auth(form, {})
                answer = await send(
                    httpx2.Request("POST", str(endpoint), data=form, headers=headers)
                )
                if answer.status_code != 200:
                    raise AuthorizationFailed(
                        f"The authorization server refused to end the login (HTTP {answer.status_code})."
                    )


def _restored(document: LoginDocument, storage: _Storage) -> OAuthClientProvider:
    """Return the SDK's client of a login, which discovers nothing again."""
    settings = LoginSettings(scope=document.tokens.scope)
    provider = _provider(document.site, storage, settings, None)
    provider.context.oauth_metadata = document.metadata
    provider.context.protected_resource_metadata = document.resource
    return provider


def _provider(
    site: str, storage: _Storage, settings: LoginSettings, person: Person | None
) -> OAuthClientProvider:
    client_id, secret, issuer = settings.client_id, settings.client_secret, settings.issuer
    method, scope = settings.token_endpoint_auth_method, settings.scope
    if settings.grant == CLIENT_CREDENTIALS:
        assert client_id is not None
        if settings.private_key is not None:
            sign = _assertions(client_id, settings.private_key)
            return PrivateKeyJWTOAuthProvider(site, storage, client_id, sign, scope, issuer)
        assert secret is not None
        return ClientCredentialsOAuthProvider(
            site, storage, client_id, secret, method, scope, issuer
        )
    redirects = [AnyUrl("http://127.0.0.1/callback" if person is None else person.redirect_uri)]
    if client_id is not None:
        storage.client = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            redirect_uris=redirects,
            token_endpoint_auth_method=method if secret else "none",
            issuer=issuer,
        )
    client = OAuthClientMetadata(client_name=CLIENT_NAME, redirect_uris=redirects, scope=scope)
    wait = None if person is None else partial(_wait, person, storage)
    provider = OAuthClientProvider(
        site, client, storage, None, wait, client_metadata_url=settings.client_metadata_url
    )
    if person is not None:
        provider.context.redirect_handler = partial(_show, person, provider)
    return provider


async def _show(person: Person, provider: OAuthClientProvider, address: str) -> None:
    """Show a person the address at which they log in, if the authorization server supports PKCE with S256.

    Metadata without its methods mean that it does not (MCP authorization, Authorization Code Protection).

    Raises:
        AuthorizationFailed: it does not.
    """
    if (metadata := provider.context.oauth_metadata) is not None:
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise AuthorizationFailed(
                "The login failed: the metadata of the authorization server lack `S256` in "
                "`code_challenge_methods_supported`, so it does not protect a login by PKCE."
            )
        endpoint = str(metadata.authorization_endpoint)
        if "?" in endpoint:
            # The SDK begins a second query (RFC 6749, section 3.1).
            address = f"{endpoint}&{address.removeprefix(endpoint + '?')}"
    await person.show(address)


async def _wait(person: Person, storage: _Storage) -> AuthorizationCodeResult:
    """Return what a person brings back, with the issuer as the service has named it; see _corrected()."""
    result = await person.wait()
    if result.iss is not None and result.iss == storage.own_issuer:
        result.iss = storage.named_issuer
    return result


def _assertions(client_id: str, key: str) -> Callable[[str], Awaitable[str]]:
    """Return what signs the assertions of a client with its key (RFC 7523).

    Raises:
        ValueError: the key cannot be read.
    """
    try:
        private_key = load_pem_private_key(key.encode(), None)
    except TypeError as error:
        raise ValueError("the private key is encrypted") from error
    algorithm = "RS256"
    if isinstance(private_key, EllipticCurvePrivateKey):
        algorithm = f"ES{min(private_key.key_size, 512)}"
    return SignedJWTParameters(
        issuer=client_id, subject=client_id, signing_key=key, signing_algorithm=algorithm
    ).create_assertion_provider()


def _document(site: str, provider: OAuthClientProvider, storage: _Storage) -> LoginDocument:
    tokens, context = storage.new_tokens, provider.context
    client = context.client_info
    if tokens is None or client is None:
        raise AuthorizationFailed(f"The authorization server of {server_of(site)} gave no token.")
    if not _TOKEN.fullmatch(tokens.access_token):
        raise AuthorizationFailed("The authorization server gave a token that no header can hold.")
    return LoginDocument(
        site=site,
        client=client,
        tokens=tokens,
        metadata=context.oauth_metadata,
        resource=context.protected_resource_metadata,
    )


_Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


async def _drive(
    provider: OAuthClientProvider,
    storage: _Storage,
    request: httpx2.Request,
    send: _Send,
    refusal: httpx2.Response | None,
) -> httpx2.Response | None:
    """Run the requests of the SDK's client until it has tokens or gives up; return the last answer.

    `request` itself is not sent: it is answered by `refusal`, once.
    """
    flow, response = provider.async_auth_flow(request), refusal
    try:
        outgoing = await anext(flow)
        while True:
            if outgoing is not request:
                response = await send(outgoing)
            elif storage.new_tokens is not None or refusal is None:
                return response
            else:
                response, refusal = refusal, None
            outgoing = await flow.asend(_corrected(response, provider, storage))
    except StopAsyncIteration:
        return response
    finally:
        await flow.aclose()


def _members(answer: httpx2.Response) -> JSON:
    """Return the members of a JSON object, none for any other answer."""
    with suppress(ValueError):
        body: object = answer.json()
        if isinstance(body, dict):
            return cast("JSON", body)
    return {}


def _corrected(
    answer: httpx2.Response, provider: OAuthClientProvider, storage: _Storage
) -> httpx2.Response:
    """Return an answer with a life of its token that can be reckoned with, and the issuer as the service has named it.

    The Python SDK's servers, and FastMCP's, name a root issuer with a slash that it lacks; a client compares the texts
    (RFC 8414, section 3.3).
    """
    named, members = provider.context.auth_server_url, _members(answer)
    corrected: JSON = {}
    issuer: object = members.get("issuer")
    if named and isinstance(issuer, str) and named != issuer and issuers_match(issuer, named):
        storage.own_issuer, storage.named_issuer = issuer, named
        corrected["issuer"] = named
    lives: object = members.get("expires_in")
    if isinstance(lives, int | float) and not 0 < lives <= _LONGEST:
        corrected["expires_in"] = _LONGEST if lives > _LONGEST else None
    if not corrected:
        return answer
    return httpx2.Response(answer.status_code, json=members | corrected, request=answer.request)


def _words(error: Exception) -> str:
    """Return the first line of an error. What the SDK quotes of an answer may be long, and is no secret."""
    text = str(error).strip().partition("\n")[0][:300].rstrip(".")
    return text or type(error).__name__


def _probe(site: str) -> httpx2.Request:
    """Return a request that a server with a login refuses, and that changes nothing where it does not."""
    headers = {
        "accept": "application/json, text/event-stream",
        MCP_PROTOCOL_VERSION_HEADER: _VERSION,
    }
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return httpx2.Request("POST", site, json=ping, headers=headers)


@asynccontextmanager
async def _sender(site: str, storage: _Storage, secret: str | None = None) -> AsyncGenerator[_Send]:
    """Open the requests of one login: those to the origin of the service as any of that, others guarded.

    An error repeats neither `secret` nor that of a client which has registered itself, also if a server does.

    Raises:
        AuthorizationFailed: a request or a step in the block failed.
    """
    origin = httpx2.URL(site).origin
    allow_loopback = is_loopback_host(httpx2.URL(site).host)
    outbound = OutboundClient(Resolver(SystemClock()), allow_loopback=allow_loopback)
    try:
        async with httpx2.AsyncClient(**http_options(site), timeout=SECONDS) as http:
            yield partial(_send, http, outbound, origin)
    except (OAuthFlowError, *UNREACHABLE, DestinationRefused, ValueError, OverflowError) as error:
        registered = None if storage.client is None else storage.client.client_secret
        words = hide([Masks([secret or "", registered or ""])], _words(error))
        raise AuthorizationFailed(f"The login failed: {words}.") from error


async def _send(
    http: httpx2.AsyncClient, outbound: OutboundClient, origin: object, request: httpx2.Request
) -> httpx2.Response:
    if request.url.origin == origin:
        request.headers["accept-encoding"] = "identity"
        response = await http.send(request, stream=True, follow_redirects=False)
        try:
            body, status = await read_body(response, ANSWER_BYTES), response.status_code
        finally:
            await response.aclose()
        answered = {key: response.headers.get(key, "") for key in _READ_HEADERS}
    else:
        answer = await outbound.request(
            request.method,
            str(request.url),
            asker="",
            headers={k: v for k, v in request.headers.items() if k in _SENT_HEADERS},
            answer_bytes=ANSWER_BYTES,
            content=await request.aread(),
        )
        body, status, answered = answer.body, answer.status, dict[str, str]()
    if body is None:
        raise AuthorizationFailed(f"{request.url.host} answered with too many bytes.")
    headers = {key: value for key, value in answered.items() if value}
    return httpx2.Response(status, headers=headers, content=body, request=request)
