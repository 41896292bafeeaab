"""How the upstreams of the tests are served: stdio, Streamable HTTP or HTTP+SSE, in one protocol era or in both.

`--era modern` refuses `initialize` with -32022 and names the versions it speaks; `--era legacy` knows nothing of
`server/discover`. Both are done here, in front of the SDK, because an SDK server always speaks both eras.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

NEVER_SPOKEN = {"modern": "initialize", "legacy": "server/discover", "both": ""}


def arguments(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], default="stdio")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one and prints it")
    parser.add_argument("--era", choices=["modern", "legacy", "both"], default="both")
    parser.add_argument(
        "--unknown-session", type=int, default=404, help="the status for an unknown session (http)"
    )
    parser.add_argument("--stateless", action="store_true", help="give no sessions (http)")
    parser.add_argument("--log", help="append one JSON line per call to this file")
    return parser


def run(
    server: Server[Any], parsed: argparse.Namespace, state: Callable[[], Any], **options: Any
) -> None:
    """Serve until the client leaves (stdio) or the process is stopped (http, sse).

    `state` makes the lifespan state: once per process, and once per connection over SSE. `options` go to the session
    manager of Streamable HTTP.
    """
    if parsed.transport == "stdio":
        anyio.run(over_stdio, server, parsed.era, state())
    elif parsed.transport == "http":
        options = {"stateless": parsed.stateless, **options}
        app = _http_app(server, parsed.era, parsed.unknown_session, **options)
        _serve(app, parsed.port)
    else:
        _serve(_sse_app(server, parsed.era, state), parsed.port)


async def over_stdio(server: Server[Any], era: str, state: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await _one_stream(server, read, write, era, state)


async def _one_stream(server: Server[Any], read: Any, write: Any, era: str, state: Any) -> None:
    """Serve one duplex stream; the request that the era does not know never reaches the SDK."""
    accepted_in, accepted = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def relay() -> None:
        async with accepted_in:
            async for item in read:
                refusal = _refusal_of(item, era)
                if refusal is None:
                    await accepted_in.send(item)
                else:
                    await write.send(SessionMessage(refusal))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay)
        options = server.create_initialization_options()
        await serve_dual_era_loop(
            server, accepted, write, lifespan_state=state, init_options=options
        )
        tasks.cancel_scope.cancel()


def _refusal_of(item: SessionMessage | Exception, era: str) -> JSONRPCError | None:
    if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCRequest):
        return None
    request = item.message
    if request.method != NEVER_SPOKEN[era]:
        return None
    requested = (request.params or {}).get("protocolVersion")
    return JSONRPCError(jsonrpc="2.0", id=request.id, error=_refusal(era, requested))


def _refusal(era: str, requested: object) -> ErrorData:
    if era == "legacy":
        return ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
    data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": str(requested)}
    return ErrorData(
        code=UNSUPPORTED_PROTOCOL_VERSION, message="Unsupported protocol version", data=data
    )


def _serve(app: ASGIApp, port: int) -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", port))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)  # noqa: T201
    # The parser that trims header values, as RFC 9110 5.5 demands.
    config = uvicorn.Config(
        app,
        http="h11",
        log_level="error",
        timeout_graceful_shutdown=1,
        ws="none",
        access_log=False,
    )
    uvicorn.Server(config).run(sockets=[listening])
    sys.exit(0)


def _http_app(server: Server[Any], era: str, unknown_session: int, **options: Any) -> ASGIApp:
    from mcp.server.streamable_http_manager import (
        StreamableHTTPASGIApp,
        StreamableHTTPSessionManager,
    )
    from starlette.applications import Starlette
    from starlette.routing import Route

    manager = StreamableHTTPSessionManager(server, max_request_body_size=64 * 2**20, **options)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    endpoint = OneEra(UnknownSession(StreamableHTTPASGIApp(manager), unknown_session), era)
    return Starlette(routes=[Route("/mcp", endpoint=endpoint)], lifespan=life)


def _sse_app(server: Server[Any], era: str, state: Callable[[], Any]) -> ASGIApp:
    from mcp.server.sse import SseServerTransport
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    transport = SseServerTransport("/messages/")

    class Endpoint:
        """An instance, so that Starlette hands the raw ASGI call on."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async with transport.connect_sse(scope, receive, send) as (read, write):
                await _one_stream(server, read, write, era, state())

    routes = [
        Route("/sse", endpoint=Endpoint(), methods=["GET"]),
        Mount("/messages/", app=transport.handle_post_message),
    ]
    return Starlette(routes=routes)


class UnknownSession:
    """Answers requests of unknown sessions with a status. Many servers answer 400 instead of 404."""

    def __init__(self, app: ASGIApp, status: int) -> None:
        self.app = app
        self.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_status(message: Any) -> None:
            if message.get("status") == 404:
                message["status"] = self.status
            await send(message)

        await self.app(scope, receive, send_with_status)


class OneEra:
    """Refuses requests over Streamable HTTP as a server of one era does. The header names the era."""

    def __init__(self, app: ASGIApp, era: str) -> None:
        self.app = app
        self.era = era

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request
        from starlette.responses import JSONResponse

        version = Request(scope).headers.get("mcp-protocol-version")
        modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        if self.era == "both" or modern == (self.era == "modern"):
            await self.app(scope, receive, send)
            return
        body = await _json_body(Request(scope, receive))
        requested = body.get("params", {}).get("protocolVersion", version)
        error = _refusal(self.era, requested).model_dump(exclude_none=True)
        answer = {"jsonrpc": "2.0", "id": body.get("id"), "error": error}
        await JSONResponse(answer, status_code=400)(scope, receive, send)


async def _json_body(request: Any) -> dict[str, Any]:
    try:
        body: object = await request.json()
    except ValueError:
        return {}
    return cast(dict[str, Any], body) if isinstance(body, dict) else {}
