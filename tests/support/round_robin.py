"""An HTTP client whose requests go to several servers in turn, as through a proxy without affinity."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle
from typing import Any, Final

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from .gateway_process import Era

MODE: Final[dict[Era, str]] = {"modern": "auto", "legacy": "legacy"}


class RoundRobin(httpx2.AsyncHTTPTransport):
    """Sends each request to the next server, over a connection of its own."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0))
        self._urls = cycle(urls)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        target = httpx2.URL(next(self._urls))
        request.url = request.url.copy_with(host=target.host, port=target.port)
        request.headers["host"] = f"{target.host}:{target.port}"
        return await super().handle_async_request(request)


def http_client(urls: Sequence[str], **options: Any) -> httpx2.AsyncClient:
    """Return a client whose relative URLs are those of the servers."""
    options = {"base_url": urls[0], "timeout": 20, **options}
    return httpx2.AsyncClient(transport=RoundRobin(urls), **options)


@asynccontextmanager
async def connected(
    urls: Sequence[str],
    transport: str,
    *,
    era: Era = "legacy",
    path: str = "",
    headers: dict[str, str] | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """Connect a client over "http" or "sse"."""

    def open_http(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return http_client(urls, headers=headers)

    async with open_http() as http:
        channel: AbstractAsyncContextManager[Any]
        if transport == "sse":
            channel = sse_client(f"{urls[0]}/sse", httpx_client_factory=open_http)
        else:
            channel = streamable_http_client(urls[0] + (path or "/mcp"), http_client=http)
        async with Client(channel, mode=MODE[era], cache=None, **options) as client:
            yield client


__all__ = ["RoundRobin", "connected", "http_client"]
