"""A client of the authorization server, and the check of its redirect URI and scopes."""

from __future__ import annotations

import re
from typing import Final, cast
from urllib.parse import urlsplit

from mcp.shared.auth import InvalidRedirectUriError, InvalidScopeError, OAuthClientInformationFull
from pydantic import AnyUrl, TypeAdapter, ValidationError

from ..scopes import SCOPES

_LOOPBACK: Final = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::[0-9]{1,5})?(/.*)?")
"""A native client listens on a port that the system gives it (RFC 8252, 7.3)."""

SHOWN_REFUSALS: Final = 5
SHOWN_CHARACTERS: Final = 60
_NOT_SHOWN: Final = re.compile(r"[^ -~]|[\"\\]")
"""The characters that an error description cannot have (RFC 6749, 5.2)."""
_URL: Final = TypeAdapter(AnyUrl)


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
    return good, refusals[:SHOWN_REFUSALS]


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
