"""The responses to requests without a sufficient token (RFC 6750), and the metadata that they name (RFC 9728)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from .refusals import AuthError, ScopeMissing, TokenMalformed, TokenMissing, VerifierUnavailable
from .scopes import USE

METADATA: Final = "/.well-known/oauth-protected-resource"
SERVER_METADATA: Final = "/.well-known/oauth-authorization-server"
RETRY_SECONDS: Final = 5
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=~-._"

_TEXTS: Final = {
    "invalid_token": "The access token is invalid or has expired",
    "invalid_request": "The request needs one access token, in the Authorization header",
    "insufficient_scope": "The operation needs a further scope",
}

METADATA_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "*",
    "cache-control": "max-age=300",
}
"""The headers of public documents, which pages of every origin may read."""


class PublicUrls:
    """The resources of this server and their metadata, below `public_url`; with an empty one there is no metadata."""

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url
        parts = urlsplit(public_url)
        self.origin = f"{parts.scheme}://{parts.netloc}" if public_url else ""
        """The origin of the pages of this server, as browsers name it."""
        self._prefix = parts.path

    def resource(self, path: str) -> str:
        """Return the URL of a resource."""
        return f"{self._public_url}{path}"

    def metadata(self, path: str) -> str | None:
        """Return the URL of the metadata of a resource."""
        return f"{self.origin}{METADATA}{self._prefix}{path}" if self._public_url else None

    def path_of(self, metadata_path: str) -> str:
        """Return the path of the resource whose metadata has this path. A proxy may leave out the path of public_url."""
        path = metadata_path.removeprefix(METADATA)
        if self._prefix and f"{path}/".startswith(f"{self._prefix}/"):
            path = path.removeprefix(self._prefix)
        return path.removesuffix("/")


def raw_path(scope: Scope) -> str:
    """Return the path of a request as it was sent, with each character that a header could not quote encoded."""
    return quote(scope["raw_path"].decode("latin-1"), safe=_PATH_CHARACTERS)


class Challenges:
    """Creates the response to a refused request."""

    def __init__(self, urls: PublicUrls) -> None:
        self._urls = urls

    def response(self, error: AuthError, path: str) -> Response:
        """Return the response to a request to `path`."""
        if isinstance(error, VerifierUnavailable):
            content = {"error": "temporarily_unavailable"}
            return JSONResponse(content, 503, {"retry-after": str(RETRY_SECONDS)})
        metadata = self._urls.metadata(path if is_resource(path) else "")
        parameters: dict[str, str] = {}
        status, code = _status(error)
        if code is not None:
            parameters |= {"error": code, "error_description": _TEXTS[code]}
        if isinstance(error, ScopeMissing):
            parameters["scope"] = error.scope
        elif code is None and metadata is not None:
            parameters["scope"] = USE
        if metadata is not None:
            parameters["resource_metadata"] = metadata
        challenge = ", ".join(f'{name}="{value}"' for name, value in parameters.items())
        content = {"error": code or "unauthorized"}
        return JSONResponse(content, status, {"www-authenticate": f"Bearer {challenge}".rstrip()})


def _status(error: AuthError) -> tuple[int, str | None]:
    """Return the HTTP status and the code of an error. A request without a token gets no code."""
    if isinstance(error, TokenMissing):
        return 401, None
    if isinstance(error, TokenMalformed):
        return 400, "invalid_request"
    if isinstance(error, ScopeMissing):
        return 403, "insufficient_scope"
    return 401, "invalid_token"


def is_resource(path: str) -> bool:
    """Whether MCP is served at a path, whatever the name of the session in it."""
    parts = path.split("/")
    return path in ("", "/mcp", "/sse") or (
        len(parts) == 4 and parts[:2] == ["", "s"] and parts[2] != "" and parts[3] == "mcp"
    )


class ResourceMetadata:
    """The documents of all resources. That of a session's URL is the same for every name."""

    def __init__(self, urls: PublicUrls, issuers: Sequence[str]) -> None:
        self._urls = urls
        self._issuers = list(issuers)

    def routes(self) -> list[Route]:
        path = f"{METADATA}{{rest:path}}"
        return [Route(path, endpoint=self._answer, methods=["GET", "OPTIONS"])]

    async def _answer(self, request: Request) -> Response:
        path = self._urls.path_of(raw_path(request.scope))
        if not is_resource(path):
            return JSONResponse({"error": "not_found"}, 404, METADATA_HEADERS)
        document = {
            "resource": self._urls.resource(path),
            "resource_name": "Statehold",
            "authorization_servers": self._issuers,
            "bearer_methods_supported": ["header"],
            "scopes_supported": [USE],
        }
        return JSONResponse(document, 200, METADATA_HEADERS)
