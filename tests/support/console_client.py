"""A browser at the console, as far as its requests go: a cookie, a CSRF token, JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx2

from statehold.server.sockets.processes import ask_each
from statehold.sessions.json_codec import JSON

API = "/api/v1"
COOKIE, GUEST = "__Host-statehold", "__Host-statehold-guest"


def console_address(data: Path, url: str = "") -> str:
    """Return the address that `statehold console` opens; with `url`, that of the server there."""
    for exchange in ask_each(data, "console", {}, seconds=15.0):
        exchange.connection.close()
        address = str(exchange.content["url"])
        if address.startswith(url):
            return address
    raise AssertionError("no server serves the console")


class ConsoleClient:
    """Requests of one browser. They carry the cookie as a browser would, which takes Secure cookies on loopback."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self.cookie = ""
        self.guest_cookie = ""
        """The cookie of a link, which is beside that of a login."""
        self.csrf = ""

    async def log_in(self, **credentials: str) -> JSON:
        response = await self.send("POST", "/login", credentials)
        assert response.status_code == 200, response.text
        header = response.headers["set-cookie"]
        name, _, value = header.partition(";")[0].partition("=")
        content = response.json()
        if name == GUEST:
            self.guest_cookie = value
        else:
            assert name == COOKIE
            self.cookie = value
        if name == COOKIE or not self.cookie:
            self.csrf = content["csrf"]
        return content

    async def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> httpx2.Response:
        return await self._client.request(
            method,
            f"{API}{path}",
            content=None if body is None else json.dumps(body),
            headers=self._headers(body is not None, headers),
        )

    def _headers(self, has_body: bool, more: dict[str, str]) -> dict[str, str]:
        cookies = {COOKIE: self.cookie, GUEST: self.guest_cookie}
        pairs = [f"{name}={value}" for name, value in cookies.items() if value]
        given = {"cookie": "; ".join(pairs)} if pairs else {}
        given |= {"content-type": "application/json"} if has_body else {}
        given |= {"x-csrf-token": self.csrf} if self.csrf else {}
        return given | {name.replace("_", "-"): value for name, value in more.items()}

    async def get(self, path: str) -> Any:
        """Return the answer to a GET that has to succeed."""
        response = await self.send("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, **body: Any) -> Any:
        """Return the answer to a POST that has to succeed."""
        response = await self.send("POST", path, body)
        assert response.status_code == 200, response.text
        return response.json()

    async def act(self, session_id: str, action: str, **body: Any) -> Any:
        return await self.post(f"/sessions/{session_id}/actions/{action}", **body)

    async def refused(self, method: str, path: str, body: object = None, **headers: str) -> JSON:
        """Return the error of a request, with its status."""
        response = await self.send(method, path, body, **headers)
        assert response.status_code >= 400, response.text
        assert response.headers["cache-control"] == "no-store"
        content = response.json()
        assert set(content) == {"code", "message", "recovery"}
        return {**content, "status": response.status_code}

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[ConsoleEvents]:
        """Follow the events until the block ends."""
        request = self._client.stream("GET", f"{API}/events", headers=self._headers(False, {}))
        async with request as response:
            assert response.status_code == 200
            events = ConsoleEvents(response.aiter_lines())
            assert await events.line() == ": open"
            yield events

    @asynccontextmanager
    async def frames(self, session_id: str, **query: object) -> AsyncGenerator[ConsoleFrames]:
        """Watch the page of a session until the block ends."""
        path = f"{API}/sessions/{session_id}/frames?{urlencode(query)}"
        headers = self._headers(False, {})
        async with self._client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield ConsoleFrames(response.aiter_raw())


class ConsoleFrames:
    """The open stream of pictures of a client."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self._pending = b""

    async def next(self, *, within: float = 20) -> tuple[JSON, bytes] | None:
        """Return the next description and its JPEG, which may be empty; None at the end of the stream."""
        with anyio.fail_after(within):
            head = await self._read(8)
            if not head:
                return None
            length, described = struct.unpack(">II", head)
            message = await self._read(length - 4)
            return json.loads(message[:described]), message[described:]

    async def _read(self, size: int) -> bytes:
        while len(self._pending) < size:
            part = await anext(self._parts, None)
            if part is None:
                assert not self._pending, "the stream ended within a message"
                return b""
            self._pending += part
        taken, self._pending = self._pending[:size], self._pending[size:]
        return taken

    async def picture(self, **members: Any) -> tuple[JSON, bytes]:
        """Return the next picture whose description has these members."""
        while (message := await self.next()) is not None:
            about, jpeg = message
            if jpeg and members.items() <= about.items():
                return about, jpeg
        raise AssertionError("the stream ended")

    async def last(self) -> JSON:
        """Return the last description, after the stream has ended."""
        about: JSON = {}
        while (message := await self.next()) is not None:
            about = message[0]
        return about


class ConsoleEvents:
    """The open stream of events of a client."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def line(self) -> str | None:
        """Return the next line that is not empty, None at the end of the stream."""
        with anyio.fail_after(20):
            async for line in self._lines:
                if line:
                    return line
        return None

    async def end(self) -> None:
        """Return at the end of the stream. Events of changes may come before."""
        while await self.line() is not None:
            pass

    async def session(self, **members: Any) -> JSON:
        """Return the next summary of a session that has these members."""
        while (line := await self.line()) is not None:
            if line.startswith("data: "):
                summary = json.loads(line.removeprefix("data: "))
                if members.items() <= summary.items():
                    return summary
        raise AssertionError("the stream ended")


@asynccontextmanager
async def console_client(url: str) -> AsyncGenerator[ConsoleClient]:
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        yield ConsoleClient(client)


@asynccontextmanager
async def operator(data: Path, url: str = "") -> AsyncGenerator[ConsoleClient]:
    """Log in as the user of the machine, by a code; with `url`, at the server there."""
    url, _, code = console_address(data, url).partition("/console#code=")
    async with console_client(url) as client:
        await client.log_in(code=code)
        yield client


__all__ = [
    "ConsoleClient",
    "ConsoleEvents",
    "ConsoleFrames",
    "console_address",
    "console_client",
    "operator",
]
