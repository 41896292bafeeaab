"""Log in once, use the login from two clients that open a new connection for every call, one of each protocol era.

    uv run python examples/browser_login.py

It starts a small site and `statehold serve` on free ports of this machine, with everything in a temporary folder.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Generator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs

from mcp import Client

FORM = """<title>Log in</title><form method="post">
<label>Name <input name="name"></label> <label>Password <input name="password" type="password"></label>
<button>Log in</button></form>"""


class Site(BaseHTTPRequestHandler):
    """A site that knows its visitors by a cookie."""

    def do_GET(self) -> None:
        name = self.headers.get("Cookie", "").partition("name=")[2]
        self.answer(f"<title>Home</title><h1>Hello {escape(name)}</h1>" if name else FORM)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(303)
        self.send_header("Set-Cookie", f"name={form['name'][0]}; HttpOnly")
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, page: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def site() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def statehold() -> Generator[str]:
    """Run `statehold serve`; without a configuration its sessions hold the built-in browser."""
    with tempfile.TemporaryDirectory(prefix="statehold-") as data:
        command = [sys.executable, "-m", "statehold", "serve", "--port", "0", "--data", data]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                listens = next(line for line in process.stderr if "listens on " in line)
                yield listens.split("listens on ")[1].strip()
            finally:
                process.terminate()
                process.stderr.read()


async def call(url: str, era: Literal["auto", "legacy"], tool: str, /, **arguments: Any) -> Any:
    """Call one tool over a connection of its own and return what it says."""
    async with Client(url, mode=era) as client:
        result = await client.call_tool(tool, arguments)
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        if result.is_error:
            raise SystemExit(f"{tool}: {text}")
        spoken = f"{client.protocol_version}  {tool}"
        heading = next((line for line in text.splitlines() if "- heading " in line), "")
        print(f"{spoken:40}{heading.split(' [')[0].strip(' -')}".rstrip())
        for line in text.splitlines():
            if line.startswith("Note from Statehold: "):
                print(textwrap.indent(textwrap.fill(line, 72), " " * 12))
        return result.structured_content


async def main(url: str, address: str) -> None:
    made = await call(url, "auto", "session_create", name="shop")
    here: dict[str, Any] = {"session_id": made["session_id"]}

    # The first client logs in.
    await call(url, "auto", "browser_navigate", **here, url=address)
    await call(url, "auto", "browser_type", **here, target="[name=name]", text="Ada")
    password = here | {"target": "[name=password]", "text": "secret", "submit": True}
    await call(url, "auto", "browser_type", **password)

    # The browser is saved and closed, as it is when nobody uses it for a while.
    await call(url, "auto", "session_pause", **here)

    # The second client, of the older protocol, finds the page as it was and the login with it.
    await call(url, "legacy", "browser_snapshot", **here)
    await call(url, "legacy", "session_close", **here)


with site() as address, statehold() as url:
    asyncio.run(main(url, address))
