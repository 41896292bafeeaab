"""An agent meets a login with a second factor, asks a person to take over, and goes on logged in.

    uv run python examples/human_login.py [DATA]

It starts a small bank and `statehold serve` on free ports of this machine, prints the address at which you take over, and
waits until you are done. Without DATA, a folder, everything is in a temporary one.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs

from mcp import Client

NAME, PASSWORD = "ada", "correct horse battery"
STYLE = """<style>body { font: 32px sans-serif; margin: 40px 120px } label { display: block; margin-bottom: 30px }
input, button { display: block; font: inherit; padding: 16px; width: 700px; box-sizing: border-box }</style>"""
LOGIN = """<form method="post" action="/login"><label>Name <input name="name" autocomplete="off"></label>
<label>Password <input name="password" type="password"></label><button>Log in</button></form>"""
CODE = """<form method="post" action="/code"><label>Code from your phone <input name="code" inputmode="numeric"
autocomplete="off"></label><button>Confirm</button></form>"""
ACCOUNT = "<p>Welcome, Ada.</p><h2>Balance: 1,204.50 EUR</h2>"


class Bank(BaseHTTPRequestHandler):
    """A site that asks for a password, and then for a code that it sends to a phone."""

    codes: ClassVar[dict[str, str]] = {}
    """The codes of visitors who gave the password, by their cookie."""
    visitors: ClassVar[set[str]] = set()
    """The cookies of visitors who also gave the code."""

    @property
    def visitor(self) -> str:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("visitor")
        return "" if cookie is None else cookie.value

    def do_GET(self) -> None:
        form = CODE if self.visitor in self.codes else LOGIN
        self.answer(ACCOUNT if self.visitor in self.visitors else form)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        visitor = self.visitor
        if self.path == "/login" and (form.get("name"), form.get("password")) == (
            [NAME],
            [PASSWORD],
        ):
            visitor = secrets.token_hex(16)
            self.codes[visitor] = f"{secrets.randbelow(10**6):06}"
            say(f"Ada's phone shows the code {self.codes[visitor]}")
        elif self.path == "/code" and form.get("code") == [self.codes.pop(visitor, "")]:
            self.visitors.add(visitor)
        self.send_response(303)
        self.send_header("Set-Cookie", f"visitor={visitor}; HttpOnly")
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, content: str) -> None:
        page = f"<!DOCTYPE html><title>Bank</title>{STYLE}<h1>Bank</h1>{content}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None: ...


def say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def bank() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Bank) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def statehold(data: str) -> Generator[str]:
    """Run `statehold serve`; without a configuration its sessions hold the built-in browser."""
    command = [sys.executable, "-m", "statehold", "serve", "--port", "0", "--data", data]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            listens = next(line for line in process.stderr if "listens on " in line)
            yield listens.split("listens on ")[1].strip()
        finally:
            process.terminate()
            process.stderr.read()


def takeover_address(data: str, session: str) -> str:
    """Return the address by which the person of this machine takes control of a session in the console: it works once."""
    words = ["sessions", "open", session, "--url-only", "--data", data]
    command = [sys.executable, "-m", "statehold", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


async def main(url: str, address: str, data: str) -> None:
    async with Client(url) as agent:

        async def call(tool: str, **arguments: Any) -> Any:
            result = await agent.call_tool(tool, arguments)
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            if result.is_error:
                raise SystemExit(f"{tool}: {text}")
            return result.structured_content or text

        created = await call("session_create", name="bank")
        session: dict[str, Any] = {"session_id": created["session_id"]}
        say(f"The bank is at {address}")
        await call("browser_navigate", **session, url=address)

        # The agent has no password and no phone.
        ask = session | {"reason": "Log in to the bank. It sends a code to your phone."}
        asked = await call("session_request_human", **ask, wait_seconds=0)
        say(f"The agent asks for you at {asked['address']}")
        say(f"Take over, within two minutes: {takeover_address(data, 'bank')}")
        say(f'Log in as {NAME} with the password "{PASSWORD}", and press Done.')
        while asked["control"]["driver"] != "agent":
            asked = await call("session_request_human", **ask, wait_seconds=60)
        say(f"The agent goes on; you said: {asked['control']['end']}")

        # The login is in the session, and no word of it in what the agent gets.
        page: str = await call("browser_snapshot", **session)
        balance = next((line for line in page.splitlines() if "Balance" in line), "no balance")
        say(balance.partition('"')[2].partition('"')[0] or balance)
        await call("session_close", **session)


with tempfile.TemporaryDirectory(prefix="statehold-") as temporary:
    folder = sys.argv[1] if len(sys.argv) > 1 else temporary
    with bank() as address, statehold(folder) as url:
        asyncio.run(main(url, address, folder))
