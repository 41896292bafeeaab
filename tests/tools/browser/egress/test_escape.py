"""Attempts of pages to reach forbidden addresses, in real browsers. A connection to the other side is an escape."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import anyio
import pytest
from anyio.abc import SocketStream
from playwright.async_api import Browser, Page
from playwright.async_api import Error as PlaywrightError
from support.browsing import Browse, opened, process_of, running
from support.proxy_ends import read_head, read_rest, site
from support.selection import matrix
from support.waiting import until

from statehold.tools.browser.egress.network_policy import (
    BROWSER_ARGS,
    NetworkPolicy,
    scheme_allowed,
)
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.process import browser_launch
from statehold.tools.browser.service import BrowserService

pytestmark = pytest.mark.peer

TYPES = {"/sw.js": "text/javascript", "/worker.js": "text/javascript"}
WORKER = b"fetch(decodeURIComponent(location.search.slice(1)), {mode: 'no-cors'}).catch(() => 0)"


fetched_ahead: set[str] = set()
"""The URLs in the addresses of pages that were fetched before a visit."""


async def allowed_site(stream: SocketStream) -> None:
    """Serve pages, scripts, redirects (`/to?URL`), large files and WebSockets."""
    while True:
        head = await read_head(stream)
        path, _, query = head.split(b" ")[1].decode().partition("?")
        if b"upgrade: websocket" in head.lower():
            await websocket(stream, head)
            return
        if path == "/to":
            await answer(stream, b"", f"Location: {unquote(query)}", status="302 Found")
        elif path == "/next":
            fetched_ahead.add(unquote(query))
            await answer(stream, b"<title>next</title>", "Content-Type: text/html")
        elif path == "/html":
            await answer(stream, unquote(query).encode(), "Content-Type: text/html")
        elif path == "/large":
            await answer(
                stream, b"x" * 200_000, "Content-Disposition: attachment; filename=large.bin"
            )
        else:
            kind = TYPES.get(path, "text/html")
            await answer(
                stream, WORKER if path in TYPES else b"<title>here</title>", f"Content-Type: {kind}"
            )


async def answer(stream: SocketStream, body: bytes, *headers: str, status: str = "200 OK") -> None:
    head = "".join(f"{h}\r\n" for h in (f"HTTP/1.1 {status}", *headers))
    await stream.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def websocket(stream: SocketStream, head: bytes) -> None:
    key = next(
        line.split(b": ")[1]
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key")
    )
    accept = base64.b64encode(
        hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    ).decode()
    await stream.send(
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        + b"\x81\x05hello"
    )
    await read_rest(stream)


@dataclass
class Forbidden:
    """The other side: every connection to it is an escape."""

    port: int = 0
    hits: int = 0
    hit: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, stream: SocketStream) -> None:
        self.hits += 1
        self.hit.set()
        head = await read_head(stream)
        if not head.startswith(b"\x16"):
            await answer(stream, b"<title>there</title>", "Content-Type: text/html")


@dataclass
class World:
    """A service that lets pages reach one site, and its browser."""

    service: BrowserService
    browser: Browser
    here: str

    @asynccontextmanager
    async def page(self) -> AsyncGenerator[Visit]:
        """Open a page of the allowed site in a session of its own."""
        async with other_side() as forbidden, opened(self.service) as browse:
            await browse.text("navigate", url=f"{self.here}/")
            yield Visit(self.here, forbidden, browse.page, browse)

    @asynccontextmanager
    async def unguarded(self) -> AsyncGenerator[Visit]:
        """Open it in the same browser, with nothing between it and the other side."""
        async with other_side() as forbidden:
            context = await self.browser.new_context()
            try:
                page = await context.new_page()
                await page.goto(f"{self.here}/")
                yield Visit(self.here, forbidden, page)
            finally:
                await context.close()


@asynccontextmanager
async def other_side() -> AsyncGenerator[Forbidden]:
    forbidden = Forbidden()
    async with site(forbidden.serve, "127.0.0.2") as port:
        forbidden.port = port
        yield forbidden


@dataclass
class Visit:
    """One page, and the forbidden address."""

    here: str
    forbidden: Forbidden
    tab: Page
    browse: Browse | None = None

    @property
    def there(self) -> str:
        return f"http://127.0.0.2:{self.forbidden.port}/there"

    async def refused(self) -> None:
        """Wait until a result reports that the address is forbidden."""
        assert self.browse is not None
        browse = self.browse

        async def is_refused() -> bool:
            assert self.forbidden.hits == 0
            text = await browse.text("wait_for", time=0.01)
            return "Not allowed to reach 127.0.0.2" in text

        await until(is_refused)

    async def run(self, script: str) -> Any:
        """Evaluate a script that knows `here` and `there`."""
        return await self.tab.evaluate(
            f"([here, there]) => {{ {script} }}", [self.here, self.there]
        )

    async def content(self) -> str:
        """Return the content of the page after its last navigation."""
        while True:
            with suppress(PlaywrightError):
                return await self.tab.content()


@pytest.fixture(scope="module", params=matrix("shell", "whole"))
def path(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)


@asynccontextmanager
async def world_of(data: Path, path: str) -> AsyncGenerator[World]:
    async with site(allowed_site) as port:
        here = f"http://127.0.0.1:{port}"
        settings: Any = {"allow": [here], "private": False, "download_bytes": 25_000}
        async with running(data, path, **settings) as service, opened(service) as browse:
            yield World(service, process_of(browse).browser, here)


@pytest.fixture(scope="module")
async def world(
    anyio_backend: Any, path: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[World]:
    # The rule for names makes all other hosts unknown, and would hide requests that the proxy lets through.
    async with AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            args = [arg for arg in BROWSER_ARGS if "resolver" not in arg]
            patch.setattr(browser_launch, "BROWSER_ARGS", args)
            data = tmp_path_factory.mktemp("data")
            world = await stack.enter_async_context(world_of(data, path))
        yield world


ELEMENT = "const e = document.createElement('{0}'); {1}; document.documentElement.append(e);"

SPECULATION = "speculation rules"

SCRIPTS = {
    "navigation by script": "location.href = there",
    "form": "const f = document.createElement('form'); f.method = 'post'; f.action = there;"
    " document.documentElement.append(f); f.submit()",
    "popup": "window.open(there)",
    "redirected popup": "window.open(`/to?${encodeURIComponent(there)}`)",
    "frame": ELEMENT.format("iframe", "e.src = there"),
    "image": ELEMENT.format("img", "e.src = there"),
    "script": ELEMENT.format("script", "e.src = there"),
    "style": ELEMENT.format("link", "e.rel = 'stylesheet'; e.href = there"),
    "font": "new FontFace('x', `url(${there})`).load().catch(() => 0)",
    "video": ELEMENT.format("video", "e.src = there"),
    "object": ELEMENT.format("object", "e.data = there"),
    "fetch": "fetch(there, {mode: 'no-cors'}).catch(() => 0)",
    "redirected fetch": "fetch(`/to?${encodeURIComponent(there)}`, {mode: 'no-cors'}).catch(() => 0)",
    "XMLHttpRequest": "const x = new XMLHttpRequest(); x.open('GET', there); x.send()",
    "WebSocket": "new WebSocket(there.replace('http', 'ws'))",
    "event source": "new EventSource(there)",
    "beacon": "navigator.sendBeacon(there, 'x')",
    "link prefetch": ELEMENT.format("link", "e.rel = 'prefetch'; e.href = there"),
    SPECULATION: ELEMENT.format(
        "script",
        "e.type = 'speculationrules'; const redirected = `${here}/to?${encodeURIComponent(there)}`;"
        " const next = `${here}/next?${encodeURIComponent(there)}`;"
        " e.textContent = JSON.stringify({prefetch: [{source: 'list', urls: [there, redirected, next],"
        " eagerness: 'immediate'}]})",
    ),
    "worker": "new Worker(`/worker.js?${encodeURIComponent(there)}`)",
    "service worker": "navigator.serviceWorker.register(`/sw.js?${encodeURIComponent(there)}`).catch(() => 0)",
    "download": ELEMENT.format("a", "e.download = 'x'; e.href = there") + " e.click()",
    "ping": ELEMENT.format("a", "e.ping = there; e.href = '#'") + " e.click()",
}
"""Name to a script in the page."""


async def navigate(visit: Visit) -> None:
    await quietly_goto(visit, visit.there)


async def redirected(visit: Visit) -> None:
    await quietly_goto(visit, f"{visit.here}/to?{visit.there}")


async def meta_refresh(visit: Visit) -> None:
    page = f"<meta http-equiv='refresh' content='0;url={visit.there}'>"
    await quietly_goto(visit, f"{visit.here}/html?{quote(page)}")


async def keepalive(visit: Visit) -> None:
    await visit.run(
        "addEventListener('pagehide', () => fetch(there, {keepalive: true, mode: 'no-cors'}))"
    )
    await visit.tab.goto("about:blank")


async def api_request(visit: Visit) -> None:
    with suppress(PlaywrightError):
        await visit.tab.context.request.get(visit.there)


async def quietly_goto(visit: Visit, url: str) -> None:
    with suppress(PlaywrightError):
        await visit.tab.goto(url)


STEPS = {
    "navigation": navigate,
    "redirected navigation": redirected,
    "meta refresh": meta_refresh,
    "fetch at the end": keepalive,
    "API request": api_request,
}
"""Name to an action on the page from outside."""

QUICK = ("navigation", "API request", "redirected popup", "fetch", "WebSocket", "service worker")
VECTORS = matrix(
    *QUICK, *(name for name in (*STEPS, *SCRIPTS) if name not in QUICK), quick=len(QUICK)
)


async def attempt(visit: Visit, vector: str) -> None:
    if vector in STEPS:
        await STEPS[vector](visit)
    else:
        # A script that leaves the page may take its own answer with it.
        with suppress(PlaywrightError):
            await visit.run(f"{SCRIPTS[vector]}; return null")


@pytest.mark.parametrize("vector", VECTORS)
async def test_a_page_does_not_reach_what_is_forbidden(world: World, vector: str) -> None:
    async with world.page() as visit:
        with anyio.fail_after(20):
            await attempt(visit, vector)
            if vector == SPECULATION:
                # Behind a proxy browsers fetch ahead from the same site only, so nothing is there to be refused.
                await until(lambda: visit.there in fetched_ahead)
            else:
                await visit.refused()
        assert visit.forbidden.hits == 0


@pytest.mark.parametrize("path", ["shell"], indirect=True)
@pytest.mark.parametrize("vector", VECTORS)
async def test_without_the_proxy_each_way_leads_there(world: World, vector: str) -> None:
    """This is the control: each attempt must work without the proxy."""
    async with world.unguarded() as visit:
        with anyio.fail_after(20):
            await attempt(visit, vector)
            await visit.forbidden.hit.wait()


async def test_a_file_is_not_shown(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    async with world.page() as visit:
        for prefix in ("file://", "FILE://", "view-source:file://"):
            with anyio.fail_after(20):
                await quietly_goto(visit, f"{prefix}{secret}")
                assert "a secret" not in await visit.content()
                await quietly_goto(visit, f"{world.here}/to?file://{secret}")
                assert "a secret" not in await visit.content()


async def test_a_page_of_the_browser_is_not_shown(world: World) -> None:
    async with world.page() as visit:
        for page in ("chrome://version", "about:version", "chrome://settings"):
            with anyio.fail_after(20):
                await quietly_goto(visit, page)
            shown = visit.tab.url
            title = await visit.tab.title()
            at_home = shown.startswith(("chrome-error://", world.here))
            assert at_home or not scheme_allowed(shown), title


class Packets:
    """A STUN server that only counts."""

    def __init__(self) -> None:
        self.count = 0


async def test_webrtc_sends_nothing_past_the_proxy(world: World) -> None:
    async with (
        await anyio.create_udp_socket(local_host="127.0.0.2") as udp,
        anyio.create_task_group() as tasks,
        world.page() as visit,
    ):
        packets = Packets()

        async def count() -> None:
            async for _ in udp:
                packets.count += 1

        tasks.start_soon(count)
        port = udp.extra(anyio.abc.SocketAttribute.local_port)
        with anyio.fail_after(20):
            candidates = await visit.tab.evaluate(
                """async ([stun, turn]) => {
                    const connection = new RTCPeerConnection({iceServers: [
                        {urls: stun}, {urls: turn, username: 'a', credential: 'b'}]});
                    const found = [];
                    connection.onicecandidate = e => e.candidate && found.push(e.candidate.candidate);
                    connection.createDataChannel('x');
                    const gathered = new Promise(resolve => connection.onicegatheringstatechange =
                        () => connection.iceGatheringState === 'complete' && resolve());
                    await connection.setLocalDescription(await connection.createOffer());
                    await gathered;
                    return found;
                }""",
                [
                    f"stun:127.0.0.2:{port}",
                    f"turn:127.0.0.2:{visit.forbidden.port}?transport=tcp",
                ],
            )
        assert candidates == []
        assert packets.count == 0
        assert visit.forbidden.hits == 0
        tasks.cancel_scope.cancel()


async def test_the_browser_itself_looks_up_no_name_and_dials_no_address(
    path: str, tmp_path: Path
) -> None:
    async with (
        running(tmp_path, path) as service,
        opened(service) as browse,
        site(allowed_site) as port,
    ):
        with anyio.fail_after(20):
            text = await browse.text("navigate", url=f"http://by-name.localhost:{port}/")
            assert "Page Title: here" in text
            world = World(service, process_of(browse).browser, f"http://127.0.0.1:{port}")
            async with world.unguarded() as visit:
                with pytest.raises(PlaywrightError, match="ERR_NAME_NOT_RESOLVED"):
                    await visit.tab.goto(visit.there)


async def test_websockets_work_and_end_with_the_access(world: World) -> None:
    async with FilteringProxy() as proxy:
        access = await proxy.admit(NetworkPolicy(allow=[world.here]))
        context = await world.browser.new_context(proxy={"server": access.server})
        page = await context.new_page()
        with anyio.fail_after(20):
            await page.goto(f"{world.here}/")
            message = await page.evaluate(
                """() => {
                    const socket = new WebSocket(location.href.replace("http", "ws"));
                    window.ended = new Promise(done => socket.onclose = () => done("ended"));
                    return new Promise(done => { socket.onmessage = e => done(e.data) });
                }"""
            )
            assert message == "hello"
            access.revoke()
            assert await page.evaluate("window.ended") == "ended"
        await context.close()


async def test_a_download_that_is_too_large_does_not_arrive(world: World) -> None:
    async with world.page() as visit:
        assert visit.browse is not None
        with anyio.fail_after(20):
            text = await visit.browse.text("navigate", url=f"{world.here}/large")
        assert "larger than the 100000 bytes allowed" in text


async def test_the_result_says_why_a_site_was_refused(world: World) -> None:
    async with world.page() as visit:
        assert visit.browse is not None
        text = await visit.browse.error("navigate", url=visit.there)
        assert "is not among the allowed hosts" in text
        assert visit.forbidden.hits == 0
