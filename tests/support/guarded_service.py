"""A service that asks for a login, tests/upstreams/guarded.py, and a person who logs in at it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client

from .fork_server import ForkServer
from .gateway_process import JSON, UPSTREAMS, statehold, text_of, toml
from .listening import run_listening

Visiting = Callable[[str], None]


def target_of(address: str) -> str:
    """Open an address, and return that of the authorization server to which it leads."""
    redirect = httpx2.get(address, timeout=30)
    assert redirect.status_code == 302, redirect.text
    return redirect.headers["location"]


def log_in(address: str) -> None:
    """Open an address as a browser does, and follow it to the page that says that the login is done."""
    page = httpx2.get(target_of(address), follow_redirects=True, timeout=30)
    assert (page.status_code, "Logged in at notes" in page.text) == (200, True), page.text


@dataclass
class Guarded:
    """A service that asks for a login, and the configuration that names it."""

    folder: Path
    url: str
    settings: JSON = field(default_factory=dict[str, Any])

    @property
    def config(self) -> Path:
        config = self.folder / "statehold.toml"
        notes = {"url": self.url, **self.settings.get("notes", {})}
        others = {key: value for key, value in self.settings.items() if key != "notes"}
        config.write_text(toml({"services": {"notes": notes}, **others}))
        return config

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def command(self, *words: str) -> list[str]:
        flags = ["--config", str(self.config), "--data", str(self.data)]
        return [*statehold(), "logins", *words, *flags]

    def run(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def add(self, *words: str, visit: Visiting | None = None) -> tuple[int, str]:
        """Log in as a person does; return the exit code and stderr."""
        with subprocess.Popen(
            self.command("add", "notes", "--url-only", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if match := re.fullmatch(r"\s+(http\S+)\n", line):
                    (visit or log_in)(match[1])
            assert process.stderr is not None
            errors = process.stderr.read()
        return process.returncode, errors

    def logins(self) -> list[JSON]:
        listed = self.run("list", "--json")
        assert listed.returncode == 0, listed.stderr
        return json.loads(listed.stdout)["logins"]

    def answer(self, path: str | None = None, content: str = "", **more: object) -> None:
        """Have a service with `--answers` give one answer to all requests of a path; without a path, none."""
        file = self.folder / "log.answers"
        new = file.with_suffix(".new")
        new.write_text(json.dumps({path: {"content": content, **more}} if path else {}))
        new.replace(file)

    def log(self) -> list[JSON]:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line) for line in lines]

    def secrets(self) -> list[str]:
        """Return the secrets that the service and its authorization server gave."""
        lines = self.log()
        found = [line["secret"] for line in lines if line.get("secret")]
        return [*found, *(token for line in lines for token in line.get("tokens", ()))]

    def events(self) -> list[str]:
        return [each["event"] for each in self.log()]

    def audit(self) -> list[str]:
        """Return the entries of the audit log about logins: the operation, without its prefix, and the outcome."""
        return [
            f"{each['operation'].removeprefix('login.')} {each['outcome']}"
            for each in self._exported()
            if each["operation"].startswith("login.")
        ]

    def audit_events(self) -> list[JSON]:
        """Return those entries as events of OCSF."""
        exported = self._exported("--format", "ocsf")
        return [each for each in exported if each["unmapped"]["event"] == "login"]

    def _exported(self, *words: str) -> list[JSON]:
        command = [*statehold(), "audit", "export", "--data", str(self.data), *words]
        lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return [json.loads(line) for line in lines.stdout.splitlines()]


@contextmanager
def guarded(
    folder: Path,
    fork_server: ForkServer,
    *options: str,
    **settings: Any,
) -> Generator[Guarded]:
    program = fork_server.command(
        str(UPSTREAMS / "guarded.py"), "--log", str(folder / "log"), *options
    )
    with run_listening(program) as port:
        yield Guarded(folder, f"http://127.0.0.1:{port}/mcp", settings)


async def whoami(client: Client, session: str) -> str:
    result = await client.call_tool("whoami", {"session_id": session})
    assert not result.is_error, text_of(result)
    return text_of(result)
