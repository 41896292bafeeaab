"""The metadata of this server as an OAuth protected resource (RFC 9728), for everyone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .challenges import METADATA, PublicUrls, is_resource, raw_path
from .scopes import USE

_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "*",
    "cache-control": "max-age=300",
}


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
            return JSONResponse({"error": "not_found"}, 404, _HEADERS)
        document = {
            "resource": self._urls.resource(path),
            "resource_name": "Statehold",
            "authorization_servers": self._issuers,
            "bearer_methods_supported": ["header"],
            "scopes_supported": [USE],
        }
        return JSONResponse(document, 200, _HEADERS)
