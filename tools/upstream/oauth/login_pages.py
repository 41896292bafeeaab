"""The pages at which the user of this machine logs in at services: to the authorization server and back (RFC 8252).

They are at a port of the loopback address, which is opened for the first login. Each address is a secret of ten minutes, for
the user of this machine.
"""

from __future__ import annotations

import asyncio
import html
import secrets
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp.shared.auth import AuthorizationCodeResult

from ....sessions.clock import Clock
from ....sessions.errors import ServiceUnavailable, StoreUnavailable
from ...logins.audit import LoginAudit
from ..config import UpstreamConfig
from .authorization import AuthorizationFailed, LoginDocument, Person, log_in

LOGIN: Final = "/login/"
CALLBACK: Final = "/callback"
LOGIN_SECONDS: Final = 600.0
"""Seconds for which an address may be used, and that a person may take."""
REQUEST_SECONDS: Final = 60.0
HEAD_BYTES: Final = 16_384
_PAGE: Final = """<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>{title} - Statehold</title>
<style>
:root {{ color-scheme: light dark; font: 1.0625rem/1.5 system-ui, sans-serif }}
main {{ max-width: 34rem; margin: 12vh auto 0; padding: 0 1.25rem; overflow-wrap: anywhere }}
h1 {{ font-size: 1.5rem; line-height: 1.25; margin: 0 }}
a {{ color: LinkText }}
small {{ opacity: .7 }}
</style>
<main><small>Statehold</small><h1>{title}</h1><p>{text}</p>{link}</main>
"""
_HEADERS: Final = (
    "content-type: text/html; charset=utf-8",
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "cache-control: no-store",
    "referrer-policy: no-referrer",
    "connection: close",
)

Put = Callable[[str, str, LoginDocument], Awaitable[None]]
"""Stores the login of a principal at a service."""
Spawn = Callable[..., object]
"""Starts a function in a task that lives as long as the process or the command."""


@dataclass(eq=False)
class Visit:
    """The login of one principal at one service, at one address."""

    owner: str
    service: str
    config: UpstreamConfig
    expires_at: float
    origin: str
    address: str
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when the person is logged in, at this address or by other means."""
    error: str = ""
    """Why the last try failed."""
    is_running: bool = False
    shown: anyio.Event = field(default_factory=anyio.Event)
    """Set when the address of the authorization server is known, or the try has failed."""
    tried: anyio.Event = field(default_factory=anyio.Event)
    """Set at the end of the try."""
    arrived: anyio.Event = field(default_factory=anyio.Event)
    target: str = ""
    query: dict[str, str] = field(default_factory=dict[str, str])

    def begin(self) -> None:
        """Begin a try: a failed one can be repeated at the same address."""
        self.is_running, self.error, self.target, self.query = True, "", "", {}
        if self.tried.is_set():
            self.shown, self.tried, self.arrived = anyio.Event(), anyio.Event(), anyio.Event()

    async def show(self, address: str) -> None:
        self.target = address
        self.shown.set()

    async def wait_returned(self) -> AuthorizationCodeResult:
        """Wait for the person to come back. The SDK checks what they bring.

        Raises:
            AuthorizationFailed: the authorization server says why it gives no code.
        """
        await self.arrived.wait()
        if error := self.query.get("error"):
            words = self.query.get("error_description", "")[:200]
            raise AuthorizationFailed(f"The login failed: {f'{error}: {words}'.rstrip(': ')}.")
        code, state = self.query.get("code", ""), self.query.get("state")
        return AuthorizationCodeResult(code=code, state=state, iss=self.query.get("iss"))


class LoginPages:
    """The login pages of one process. The port is closed with the task in which `spawn` keeps it.

    `own_ports` gets the ports that it opens: no page of a session may reach them.
    """

    def __init__(
        self, put: Put, audit: LoginAudit, clock: Clock, spawn: Spawn, own_ports: set[int]
    ) -> None:
        self._own_ports = own_ports
        self._put = put
        self._audit = audit
        self._clock = clock
        self._spawn = spawn
        self._opening = anyio.Lock()
        self._origins: dict[int, str] = {}
        """The origins by the ports that the services name, 0 for any port."""
        self._visits: dict[str, Visit] = {}
        self._requests = 0
        self._answered = anyio.Event()

    async def wait_answered(self) -> None:
        """Wait until the browser has the answers to its requests."""
        while self._requests:
            await self._answered.wait()

    async def visit(self, owner: str, service: str, config: UpstreamConfig) -> Visit:
        """Return the visit of a principal to a service, with its address: a new one, or one that is not over.

        Raises:
            OSError: the port cannot be opened.
        """
        origin = await self._open(config.login.port or 0)
        self._drop_ended()
        expires_at = self._clock.now() + LOGIN_SECONDS
        for visit in self._visits.values():
            if (visit.owner, visit.service, visit.config) == (owner, service, config):
                visit.expires_at = expires_at
                return visit
        token = secrets.token_urlsafe(24)
        visit = Visit(owner, service, config, expires_at, origin, f"{origin}{LOGIN}{token}")
        self._visits[token] = visit
        return visit

    async def _open(self, port: int) -> str:
        """Open a port unless it is open. Return its origin."""
        async with self._opening:
            if port not in self._origins:
                server = await asyncio.start_server(
                    self._serve, "127.0.0.1", port, limit=HEAD_BYTES
                )
                bound: int = server.sockets[0].getsockname()[1]
                self._own_ports.add(bound)
                self._origins[port] = f"http://127.0.0.1:{bound}"
                self._spawn(_hold, server)
            return self._origins[port]

    def _drop_ended(self) -> None:
        """Forget the addresses that are over."""
        now = self._clock.now()
        self._visits = {
            token: visit
            for token, visit in self._visits.items()
            if visit.is_running or (now < visit.expires_at and not visit.ended.is_set())
        }

    async def _try(self, visit: Visit) -> None:
        """Have the person of a visit log in, once."""
        person = Person(f"{visit.origin}{CALLBACK}", visit.show, visit.wait_returned)
        try:
            with anyio.fail_after(LOGIN_SECONDS):
                document = await log_in(visit.config.url or "", visit.config.login, person)
            await self._put(visit.owner, visit.service, document)
            visit.ended.set()
        except ServiceUnavailable as error:
            visit.error = error.message
            self._audit.note("refuse", visit.owner, visit.service, "failed")
        except StoreUnavailable:
            visit.error = "The login cannot be stored now."
        except TimeoutError:
            visit.error = "Nobody logged in within ten minutes."
        except Exception as error:
            visit.error = f"The login failed: {type(error).__name__}."
        finally:
            visit.is_running = False
            visit.shown.set()
            visit.tried.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser, which may ask for other things, such as an icon."""
        self._requests += 1
        try:
            await self._serve_one(reader, writer)
        finally:
            self._requests -= 1
            self._answered.set()
            self._answered = anyio.Event()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            closing(writer),
            suppress(OSError, ValueError, TimeoutError),
            suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError),
        ):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ")
                status, location, body = await self._answer(method, target)
                lines = [
                    f"HTTP/1.1 {status}",
                    *([f"location: {location}"] if location else []),
                    f"content-length: {len(body)}",
                    *_HEADERS,
                ]
                writer.write("\r\n".join([*lines, "\r\n"]).encode() + body)
                await writer.drain()

    async def _answer(self, method: str, target: str) -> tuple[str, str, bytes]:
        """Return the status, the address of a redirect, and the page for a request."""
        self._drop_ended()
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        visit = self._visits.get(parts.path.removeprefix(LOGIN))
        if method == "GET" and visit is not None:
            if not visit.is_running:
                visit.begin()
                self._spawn(self._try, visit)
            await visit.shown.wait()
            return ("302 Found", visit.target, b"") if visit.target else _failed(visit)
        visit = self._returning(query.get("state")) if parts.path == CALLBACK else None
        if method != "GET" or visit is None:
            text = "This address was used, or is older than ten minutes. Call the tool or run the command again."
            return "404 Not Found", "", _page("No login at this address", text)
        visit.query = query
        visit.arrived.set()
        await visit.tried.wait()
        if not visit.ended.is_set():
            return _failed(visit)
        text = f"Calls to {visit.service} use this login from now on. You can close this window."
        return "200 OK", "", _page(f"Logged in at {visit.service}", text)

    def _returning(self, state: str | None) -> Visit | None:
        """Return the visit that led to an authorization server with this `state`."""
        for visit in self._visits.values():
            sent = parse_qs(urlsplit(visit.target).query).get("state", [""])[0]
            if state and sent and secrets.compare_digest(sent.encode(), state.encode()):
                return visit
        return None


def _failed(visit: Visit) -> tuple[str, str, bytes]:
    link = f'<p><a href="{visit.address}">Try again</a></p>'
    return "502 Bad Gateway", "", _page(f"Not logged in at {visit.service}", visit.error, link)


def _page(title: str, text: str, link: str = "") -> bytes:
    return _PAGE.format(title=html.escape(title), text=html.escape(text), link=link).encode()


async def _hold(server: asyncio.Server) -> None:
    async with server:
        await anyio.sleep_forever()
