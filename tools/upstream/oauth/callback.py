"""A port of this machine to which a browser comes back from an authorization server (RFC 8252, 7.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp.shared.auth import AuthorizationCodeResult

from .authorization import AuthorizationFailed, Person

PATH: Final = "/callback"
REQUEST_SECONDS: Final = 10.0
HEAD_BYTES: Final = 16_384
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Statehold</title><body style='font: 1.1em sans-serif; margin: 3em'>"
    "<p>{}</p>"
)


class _Callback:
    """The answer of one authorization server, which arrives once."""

    def __init__(self) -> None:
        self._arrived = anyio.Event()
        self._query: dict[str, str] = {}

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the person. The SDK checks what they bring.

        Raises:
            AuthorizationFailed: the authorization server says why it gives no code.
        """
        await self._arrived.wait()
        if error := self._query.get("error"):
            words = self._query.get("error_description", "")[:200]
            raise AuthorizationFailed(f"The login failed: {f'{error}: {words}'.rstrip(': ')}.")
        return AuthorizationCodeResult(
            code=self._query.get("code", ""),
            state=self._query.get("state"),
            iss=self._query.get("iss"),
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser, which may ask for other things, such as an icon."""
        with closing(writer), suppress(OSError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ")
                status, text = self._answer(method, target)
                body = _PAGE.format(text).encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"
                    "connection: close\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n\r\n".encode()
                    + body
                )
                await writer.drain()

    def _answer(self, method: str, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if method != "GET" or parts.path != PATH or not query.keys() & {"code", "error"}:
            return "404 Not Found", "There is nothing here."
        if not self._arrived.is_set():
            self._query = query
            self._arrived.set()
        if "error" in query:
            return "200 OK", "The login failed. The terminal says why."
        return "200 OK", "You are logged in. You can close this window."


@asynccontextmanager
async def local_person(show: Callable[[str], Awaitable[None]]) -> AsyncGenerator[Person]:
    """Open a port for a person whose browser runs on this machine; `show` shows them the address to open."""
    callback = _Callback()
    server = await asyncio.start_server(callback.serve, "127.0.0.1", 0, limit=HEAD_BYTES)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Person(f"http://127.0.0.1:{port}{PATH}", show, callback.wait)
