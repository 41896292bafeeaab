"""The page of the console: files of the package, which need no login; and the headers of all responses."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .routes import error_response, not_found

FOLDER: Final = Path(__file__).parent / "static"
PAGE: Final = "/console"
_TYPES: Final = {".js": "text/javascript", ".svg": "image/svg+xml"}
"""Types that the machine's table may not know, or have otherwise."""


def page_routes() -> list[BaseRoute]:
    """Return the routes of the files below PAGE."""
    files = {
        path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()
    }
    # The files are the same for everybody, so their compressed sizes tell nothing.
    return [
        Route(
            path,
            endpoint=partial(_answer, files),
            methods=["GET"],
            middleware=[Middleware(GZipMiddleware)],
        )
        for path in ("/", "/{name:path}")
    ]


class BrowserRoute(Route):
    """A route for browsers alone: a request that accepts no HTML, as those of MCP clients, does not find it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is Match.FULL and "text/html" in Headers(scope=scope).get("accept", ""):
            return match, child
        return Match.NONE, {}


async def redirect_to_page(scope: Scope, receive: Receive, send: Send) -> None:
    """Send a browser to the page. It keeps the fragment of the address, which has the code of a login."""
    await RedirectResponse("console/", status_code=308)(scope, receive, send)


async def embedded_page(scope: Scope, receive: Receive, send: Send) -> None:
    """Send the page that shows one session in a frame. It needs the code of a link."""
    await FileResponse(FOLDER / "embed.html")(scope, receive, send)


async def _answer(files: Mapping[str, Path], request: Request) -> Response:
    # A name is looked up, and never becomes a path: not every text can be one.
    path = files.get(request.path_params.get("name") or "index.html")
    if path is None:
        return error_response(not_found())
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return FileResponse(path, media_type=media_type)


class SecurityHeaders:
    """Adds the headers of the console to every response of an application. Pages of `origins` may show it in a frame."""

    def __init__(self, app: ASGIApp, origins: Sequence[str] = ()) -> None:
        self._app = app
        self._headers = _headers(" ".join(origins) or "'none'")

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes of the application, as Mount lists them."""
        return self._app.routes if isinstance(self._app, Router) else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # With "app", Starlette would answer an unknown method further out, without these headers.
        inner = {key: value for key, value in scope.items() if key != "app"}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(inner, receive, send_with_headers)


def _headers(framed_by: str) -> dict[str, str]:
    """Return the headers of the console. `framed_by` are the sources of the pages that may show a response in a frame."""
    return {
        "cache-control": "no-store",
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
            f"frame-ancestors {framed_by}; base-uri 'none'; form-action 'none'"
        ),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
