"""A site with a login that sessions have in turn: its configuration, its row in the store, and its requests by session."""

from __future__ import annotations

import json
import random
import subprocess
import time
import zipfile
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from mcp import Client

from statehold.sessions.json_codec import JSON
from statehold.sessions.records import LOCAL
from statehold.sessions.store.base import OK, UNCHECKED, LoginRecord
from statehold.sessions.store.sealing.keyring import Keyring
from statehold.sessions.store.sql import SQLStore
from statehold.tools.browser.logins.sites import decode_value, encode_value
from statehold.tools.browser.snapshot.model import ContextSnapshot
from statehold.tools.browser.snapshot.storage_file import parse_storage_state

from .gateway_process import Running, Way, run_command, text_of, toml
from .login_site import LoginSite, Policy, serve_logins
from .waiting import until

START = 8
"""Bytes of a spelling by which it is looked up."""


def keyring_of(*keys: str, folder: Path | None = None) -> Keyring:
    """Return the keys of a store that is sealed with the first of these. `folder` may have a key of logins."""

    async def read_keys() -> list[str]:
        return list(keys)

    return Keyring(folder, read_keys)


@dataclass
class StoredLogin:
    """The login `shop` in a store."""

    store: SQLStore
    site: LoginSite

    async def save(self, **values: Any) -> None:
        """Store the login that is valid at the site."""
        value = parse_storage_state(json.dumps(self.site.state()).encode())
        this = {"owner": LOCAL.key, "name": "shop", **values}
        sealed = await self.store.logins.seal(this["owner"], this["name"], encode_value(value))
        record: dict[str, Any] = {
            **this,
            "kind": "browser",
            "site": self.site.address,
            "issuer": "",
            "state": OK,
            "since": 1.0,
            "sealed": sealed,
        }
        await self.store.logins.put(LoginRecord(**record | values))

    async def row(self) -> LoginRecord:
        found = await self.store.logins.find(LOCAL.key, "shop")
        assert found is not None
        return found

    async def value(self) -> ContextSnapshot:
        return decode_value(await self.store.logins.open(await self.row()))

    async def cookie(self) -> str:
        """The cookie of the login as it is sealed."""
        return (await self.value()).cookies[0]["value"]

    async def check_after_kill(self) -> bool:
        """Check that at most the last request is lost, and that the login is not `ok` then; return whether none is."""
        row, sealed = await self.row(), await self.cookie()
        is_newest = sealed == self.site.valid
        assert is_newest or row.state == UNCHECKED or row.lease_ends_at > 0
        if self.site.policy == "reuse":
            assert is_newest or sealed == self.site.visits[-1].cookie
            assert 401 not in self.site.statuses
        return is_newest

    async def check_next_holder(self) -> None:
        """Check that the login is `ok` for the next session only if the last one gave it back as `ok`."""
        row = await self.row()
        again = await self.store.logins.take(row, row.session or "next", 1e12, 2e12)
        assert again is not None
        assert (again.state == OK) == (row.state == OK and not row.lease_ends_at)


@dataclass
class Shop:
    """A site with a login, and the configuration that declares it."""

    site: LoginSite
    folder: Path
    config: Path
    document: JSON = field(default_factory=dict[str, Any])
    """The configuration, of a shop of open_shop()."""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def settings(self, executable: str, **browser: Any) -> JSON:
        """Return the sections of a configuration that declare the login."""
        return {
            "toolsets": ["core", "lifecycle"],
            "recovery": {"backoff": [0.05, 1, 5]},
            "services": {"browser": {"executable": executable, "private": True, **browser}},
            "logins": {"shop": {"kind": "browser", "sites": [self.site.address]}},
        }

    def check(self, path: str, **settings: Any) -> None:
        """Have the login checked by a page of the site."""
        self.document["logins"]["shop"]["check"] = {"url": self.site.address + path}
        self.document["logins"]["shop"] |= settings
        self.config.write_text(toml(self.document))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_command(self.config, self.data, "logins", *words)

    def add(self) -> None:
        """Log in at the site, and store the login."""
        self.site.log_in()
        file = self.folder / "state.json"
        file.write_text(json.dumps(self.site.state()))
        done = self.run("import", "shop", str(file))
        assert done.returncode == 0, done.stderr
        assert self.site.valid not in done.stdout + done.stderr

    @asynccontextmanager
    async def connect(self, running: Running) -> AsyncGenerator[Client]:
        way = Way("http", "modern", self.config, self.data, url=running.url)
        async with way.connect() as client:
            yield client


@contextmanager
def open_shop(folder: Path, executable: str, policy: Policy = "reuse") -> Generator[Shop]:
    """Serve the site until the block ends, with a configuration of one server."""
    with serve_logins(policy) as site:
        shop = Shop(site, folder, folder / "statehold.toml")
        shop.document = shop.settings(executable)
        shop.config.write_text(toml(shop.document))
        yield shop


async def call(client: Client, tool: str, session: str, **arguments: Any) -> str:
    """Call a tool that has to succeed and return the text of its result."""
    result = await client.call_tool(tool, {"session_id": session, **arguments})
    assert not result.is_error, text_of(result)
    return text_of(result)


@dataclass
class Turn:
    """The time in which a session may have the login, by the clock of the site."""

    session: str
    asked_at: float
    got_at: float = float("inf")


@dataclass
class Turns:
    """Sessions that have the login in turn. The pages of each name it in their requests, `?by=NAME`."""

    site: LoginSite
    path: str = "/"
    """A page that is opened in each turn; /poll in the first one only."""
    is_over: bool = False
    past: list[Turn] = field(default_factory=list[Turn])

    def begin(self, number: int) -> None:
        """Begin a round of new sessions. In every other one the pages ask all the time."""
        self.is_over = False
        self.site.statuses.clear()
        self.site.policy = "fixed" if number % 2 else "reuse"
        self.path = "/poll" if number % 2 else "/"

    async def wait_for_a_moment(self, chance: random.Random) -> None:
        """Wait for any step of the next turns."""
        count = len(self.past) + chance.randint(1, 6)
        await until(lambda: len(self.past) >= count, within=60)
        await anyio.sleep(chance.uniform(0.0, 0.3))

    async def run(self, callers: Sequence[tuple[Client, str]]) -> None:
        """Lend the login to each session in turn, over its client, until a call fails or `is_over`."""
        for client, session in cycle(callers):
            if self.is_over:
                return
            await self.take(client, session)

    async def take(self, client: Client, session: str, answers: int = 0) -> None:
        """Lend the login to a session until its page has some more answers."""
        turn = Turn(session, time.monotonic())
        opens = self.path == "/" or all(each.session != session for each in self.past)
        self.past.append(turn)
        await call(client, "login_use", session, login="shop", wait_seconds=10)
        turn.got_at = time.monotonic()
        if opens:
            url = f"{self.site.address}{self.path}?by={session}"
            await call(client, "browser_navigate", session, url=url)
        await self.site.wait_answers(answers)
        await call(client, "login_release", session, login="shop")

    def intruders(self) -> list[tuple[float, str]]:
        """Return the requests of sessions at times at which they did not have the login."""
        return [
            (visit.at, visit.by)
            for visit in self.site.visits
            if visit.by and visit.by not in self._holders(visit.at)
        ]

    def _holders(self, at: float) -> set[str]:
        """Return the session that got the login last, and those that asked for it since."""
        number = max((n for n, turn in enumerate(self.past) if turn.got_at <= at), default=0)
        return {turn.session for turn in self.past[number:] if turn.asked_at <= at}


def spellings(secret: str) -> list[bytes]:
    """Return a text as it is, and as JSON, URLs, hexadecimal digits and Base64 have it."""
    data = secret.encode()
    found = {data, json.dumps(secret)[1:-1].encode(), quote(secret, safe="").encode()}
    found |= {quote(secret, safe="").lower().encode(), data.hex().encode()}
    for offset in range(3):
        # Neighbours change the characters at both ends.
        core = b64encode(b"x" * offset + data)[4 if offset else 0 : -4]
        found |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return sorted(found)


class SecretFinder:
    """Finds some secrets in bytes, in any spelling, in one pass."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._by_start: dict[bytes, list[tuple[bytes, str]]] = {}
        for secret in secrets:
            for text in spellings(secret):
                self._by_start.setdefault(text[:START], []).append((text, secret))

    def find(self, data: bytes) -> set[str]:
        """Return the secrets that are in the data."""
        found: set[str] = set()
        for at in range(len(data) - START + 1):
            for text, secret in self._by_start.get(data[at : at + START], ()):
                if data.startswith(text, at):
                    found.add(secret)
        return found

    def find_in_files(self, folder: Path) -> dict[str, set[str]]:
        """Return the secrets in files, also in those inside of archives, by the path of the file."""
        found: dict[str, set[str]] = {}
        for path in folder.rglob("*"):
            if not path.is_file() or "temporary" in path.parts:
                continue
            contents = [path.read_bytes()]
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    contents = [archive.read(name) for name in archive.namelist()]
            if leaked := self.find(b"\n".join(contents)):
                found[str(path.relative_to(folder))] = leaked
        return found


__all__ = ["SecretFinder", "Shop", "StoredLogin", "Turns", "call", "open_shop"]
