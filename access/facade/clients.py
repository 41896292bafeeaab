"""The clients of the authorization server: those of a metadata document, and those that register themselves (RFC 7591).

The `client_id` of the first is the URL of a document. The URL comes from anyone, so that the fetch connects to public
addresses only. The `client_id` of the others holds their metadata, so that strangers who register any number of clients
do not fill the store. It proves nothing: everyone may register a client with any name.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.provider import RegistrationError
from mcp.shared.auth import InvalidRedirectUriError, InvalidScopeError, OAuthClientInformationFull
from pydantic import AnyUrl, BaseModel, ConfigDict, TypeAdapter, ValidationError

from ...sessions.clock import SystemClock
from ...sessions.json_codec import JSON
from ...sessions.live.session import client_address
from ...sessions.owned_map import OwnedMap
from ...tools.browser.egress.resolver import Resolver
from ...tools.outbound import UNREACHABLE, DestinationRefused, OutboundClient
from ..refusals import network_of
from ..scopes import SCOPES

_LOOPBACK: Final = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::[0-9]{1,5})?(/.*)?")
"""A native client listens on a port that the system gives it (RFC 8252, 7.3)."""

MAX_SHOWN_REFUSALS: Final = 5
SHOWN_CHARACTERS: Final = 60
_NOT_SHOWN: Final = re.compile(r"[^ -~]|[\"\\]")
"""The characters that an error description cannot have (RFC 6749, 5.2)."""
_URL: Final = TypeAdapter(AnyUrl)

PREFIX: Final = "shc_"
ID_CHARACTERS: Final = 1000
_MEMBERS: Final = ("client_name", "redirect_uris", "grant_types")

DOCUMENT_BYTES: Final = 16 * 1024
CACHE_SECONDS: Final = 300.0
STALE_SECONDS: Final = 86_400.0
"""Seconds for which the last document is used while its server does not answer, so that clients can refresh their tokens."""
MAX_CACHED_DOCUMENTS: Final = 1000
ABSENT_SECONDS: Final = 30.0
"""Seconds for which a name without an address is not looked up again."""
DOMAIN_LABELS: Final = 2
"""Labels of a name that stand for its domain, whose documents displace only one another in the cache."""
_AUTHENTICATION: Final = "none"


class FacadeClient(OAuthClientInformationFull):
    """A client whose redirect URIs are compared exactly, but for the port of one on loopback."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Return the redirect URI of a request.

        Raises:
            InvalidRedirectUriError: it is missing, or is none of the client's.
        """
        allowed = {_without_port(str(uri)) for uri in self.redirect_uris or ()}
        if redirect_uri is None or _without_port(str(redirect_uri)) not in allowed:
            raise InvalidRedirectUriError("redirect_uri is not registered for the client")
        if _refusal(redirect_uri) is not None:
            raise InvalidRedirectUriError("redirect_uri is neither https nor http on loopback")
        return redirect_uri

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """Return the scopes of a request that this server has. Others are left out.

        Raises:
            InvalidScopeError: none is left.
        """
        if requested_scope is None:
            return None
        scopes = [scope for scope in SCOPES if scope in requested_scope.split(" ")]
        if not scopes:
            raise InvalidScopeError("no scope of this server was asked for")
        return scopes


def _without_port(uri: str) -> str:
    found = _LOOPBACK.fullmatch(uri)
    if found is not None:
        return f"{found[1]}{found[2] or '/'}"
    # An empty path is the same as a slash; some models of URLs write it so.
    parts = urlsplit(uri)
    return uri if parts.path else parts._replace(path="/").geturl()


def sort_redirect_uris(uris: object) -> tuple[list[str], list[str]]:
    """Return those redirect URIs to which a code may be sent, and the reasons for which the others are refused."""
    good: list[str] = []
    refusals: list[str] = []
    for uri in cast("list[object]", uris) if isinstance(uris, list) else []:
        reason = _refusal(uri)
        if reason is None:
            good.append(str(uri))
        else:
            refusals.append(f"{_NOT_SHOWN.sub('', str(uri))[:SHOWN_CHARACTERS]}: {reason}")
    return good, refusals[:MAX_SHOWN_REFUSALS]


def _refusal(uri: object) -> str | None:
    """Return the reason for which no code may be sent to a URL, None if it may: it is https, or http on loopback."""
    try:
        url = _URL.validate_python(uri)
    except ValidationError:
        return "is no URL"
    if url.fragment is not None or url.username or url.password:
        return "should have no fragment and no user"
    if url.scheme == "https" or _LOOPBACK.fullmatch(str(url)) is not None:
        return None
    return "should be https, or http on loopback"


class LoginRequest(BaseModel):
    """An authorization request that was checked. It travels in sealed form until the person is known."""

    model_config = ConfigDict(frozen=True)

    client_id: str
    redirect_uri: str
    state: str | None = None
    scopes: list[str]
    challenge: str
    """The code challenge of PKCE, by S256."""
    resource: str


def registered_id(client: OAuthClientInformationFull) -> str:
    """Return the `client_id` of a client that registers itself.

    Raises:
        RegistrationError: it has no redirect URI, or too much metadata.
    """
    if not client.redirect_uris:
        raise RegistrationError("invalid_redirect_uri", "There should be a redirect URI")
    document = client.model_dump(mode="json", include=set(_MEMBERS), exclude_none=True)
    document["id"] = secrets.token_urlsafe(6)
    body = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    client_id = PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")
    if len(client_id) > ID_CHARACTERS:
        raise RegistrationError("invalid_client_metadata", "The metadata are too long")
    return client_id


def registered_client(client_id: str) -> FacadeClient | None:
    """Return the client of a `client_id`, None if it is none of registered_id()."""
    text = client_id.removeprefix(PREFIX)
    if len(client_id) > ID_CHARACTERS or not client_id.startswith(PREFIX):
        return None
    try:
        document: object = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    members = {key: value for key, value in cast("JSON", document).items() if key in _MEMBERS}
    members |= {"client_id": client_id, "token_endpoint_auth_method": "none"}
    try:
        return FacadeClient.model_validate(members)
    except ValidationError:
        return None


class DocumentInvalid(Exception):
    """A `client_id` has no acceptable document. The text is for the log."""


class _Unreadable(Exception):
    """The server of a document does not give it now."""


class ClientDocuments:
    """Fetches the documents of clients, and keeps them for a bounded time.

    With `allow_loopback`, http and https URLs of loopback addresses are accepted too. `clock` returns seconds that only
    rise. A fetch counts to the network from which the current request came.
    """

    def __init__(
        self,
        *,
        allow_loopback: bool,
        clock: Callable[[], float] = anyio.current_time,
        resolver: Resolver | None = None,
    ) -> None:
        self._clock = clock
        self._clients = OwnedMap[str, tuple[FacadeClient, float]](MAX_CACHED_DOCUMENTS)
        resolver = resolver or Resolver(SystemClock(), absent_seconds=ABSENT_SECONDS)
        self._outbound = OutboundClient(resolver, allow_loopback=allow_loopback)

    async def client(self, client_id: str) -> FacadeClient:
        """Return the client of a document.

        Raises:
            DocumentInvalid: the URL is not acceptable, cannot be read in time, or its document is not about `client_id`.
        """
        kept = self._clients.get(client_id)
        if kept is not None and self._clock() < kept[1]:
            return kept[0]
        host = self._check_url(client_id)
        asker = network_of(client_address.get())
        try:
            body = await self._fetch(client_id, asker)
        except (*UNREACHABLE, _Unreadable) as error:
            if kept is not None and self._clock() < kept[1] + STALE_SECONDS:
                return kept[0]
            raise DocumentInvalid(f"it cannot be read ({type(error).__name__})") from None
        client = _client_of(body, client_id)
        domain = ".".join(host.split(".")[-DOMAIN_LABELS:])
        self._clients.put(domain, client_id, (client, self._clock() + CACHE_SECONDS))
        return client

    def _check_url(self, client_id: str) -> str:
        """Return the host of a URL."""
        try:
            parts = self._outbound.check_url(client_id)
        except DestinationRefused as error:
            raise DocumentInvalid(str(error)) from None
        if "?" in client_id:
            raise DocumentInvalid("it has a query")
        if parts.path in ("", "/") or {".", ".."} & set(parts.path.split("/")):
            raise DocumentInvalid("it has no path, or one with dots")
        return parts.hostname or ""

    async def _fetch(self, url: str, asker: str) -> bytes:
        try:
            answer = await self._outbound.request(
                "GET",
                url,
                asker=asker,
                headers={"accept": "application/json"},
                answer_bytes=DOCUMENT_BYTES,
            )
        except DestinationRefused as error:
            raise DocumentInvalid(str(error)) from None
        if answer.status == 429 or answer.status >= 500:
            raise _Unreadable
        if answer.status != 200:
            raise DocumentInvalid(f"it answers {answer.status}")
        if answer.body is None:
            raise DocumentInvalid("its document is too large")
        return answer.body


def _client_of(body: bytes, client_id: str) -> FacadeClient:
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        raise DocumentInvalid("its document is no JSON") from None
    if not isinstance(document, dict):
        raise DocumentInvalid("its document is no JSON object")
    members = cast("JSON", document)
    if members.get("client_id") != client_id:
        raise DocumentInvalid("its document is about another client_id")
    if members.get("token_endpoint_auth_method", _AUTHENTICATION) != _AUTHENTICATION:
        raise DocumentInvalid("its token_endpoint_auth_method is not none")
    if "client_secret" in members or not members.get("redirect_uris"):
        raise DocumentInvalid("its document has a secret, or no redirect_uris")
    kept = {key: members[key] for key in ("client_id", *_MEMBERS) if key in members}
    # A URI that cannot be used spoils none of the others.
    good, refusals = sort_redirect_uris(members["redirect_uris"])
    if refusals and not good:
        raise DocumentInvalid(f"its redirect_uris: {'; '.join(refusals)}")
    if refusals:
        kept["redirect_uris"] = good
    try:
        return FacadeClient.model_validate({**kept, "token_endpoint_auth_method": _AUTHENTICATION})
    except ValidationError:
        raise DocumentInvalid("its document is no client metadata") from None
