"""A client of the authorization server, and the check of its redirect URI and scopes."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from mcp.shared.auth import InvalidRedirectUriError, InvalidScopeError, OAuthClientInformationFull
from pydantic import AnyUrl

from ..scopes import SCOPES

_LOOPBACK: Final = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::[0-9]{1,5})?(/.*)?")
"""A native client listens on a port that the system gives it (RFC 8252, 7.3)."""


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
        if not is_acceptable(redirect_uri):
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


def is_acceptable(uri: AnyUrl) -> bool:
    """Whether a code may be sent to a URL: https, or http on loopback."""
    if uri.fragment is not None or uri.username or uri.password:
        return False
    return uri.scheme == "https" or _LOOPBACK.fullmatch(str(uri)) is not None


__all__ = ["FacadeClient", "is_acceptable"]
