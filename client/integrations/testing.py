"""Contents of tests: the objects behind the fixtures of the pytest plugin, and assertions on results and pages.

The objects are a `statehold serve`, and a server under test in an embedded one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...tools.processes import procfs
from .. import sync
from ..client import Client
from ..connect import StrPath, connect
from ..protocol.elicitation import ElicitationCallback
from ..session import Session
from ..sync.portal import ElicitationCallback as BlockingElicitationCallback
from ..transport.embedded import EmbeddedTransport
from .assertions import (
    AGO,
    DATE,
    DURATION,
    ID,
    NUMBER,
    TIME,
    has_file,
    matches,
    page_lacks,
    page_says,
    require_arguments,
    require_variable,
    says,
    value_at,
)

if TYPE_CHECKING:
    from ...tools.processes.ledger import Ledger

NAME: Final = "server"
"""The service of a server under test."""
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
EXIT_SECONDS: Final = 1.0
FDS: Final = 16
"""Descriptors that a server may open and keep during a test, by default."""
TOOLSETS: Final = "core,lifecycle,state,history,branch,admin"
_LISTENS: Final = "Statehold listens on "


class ServerProcess:
    """A `statehold serve` on a free port of this machine, with all its data in one folder. It runs until stop()."""

    def __init__(self, folder: Path, *options: str) -> None:
        arguments = ["serve", "--port", "0", "--data", str(folder / "data"), *options]
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "statehold", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            env={k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")},
        )
        self.data = folder / "data"
        self.pid = self._process.pid
        self.url: str = ""
        """Its address for connect(); `url + "/mcp"` is for any other client."""
        self._lines: list[str] = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._listens.wait(START_SECONDS) or not self.url:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._reader.join(STOP_SECONDS)
            raise RuntimeError(f"statehold serve did not start:\n{self.log}")

    def __repr__(self) -> str:
        return f"<ServerProcess {self.url} pid={self.pid}>"

    @property
    def log(self) -> str:
        """The text of its log."""
        return "".join(self._lines)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.append(line)
                if _LISTENS in line and not self.url:
                    self.url = line.partition(_LISTENS)[2].strip().removesuffix("/mcp")
                    self._listens.set()
        self._listens.set()

    def stop(self) -> list[str]:
        """End it and return descriptions of what it left behind; empty when all is well."""
        family = _family(self.pid)
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        problems = _describe_running(family)
        return [*problems, *([] if code == 0 else [f"the exit code {code}; its log:\n{self.log}"])]


def options_of(
    config: StrPath | None, services: Mapping[str, Any] | StrPath, folder: Path, root: Path
) -> list[str]:
    """Return the options of `statehold serve` for a settings file and a table of services, or a file of one."""
    options = ["--toolsets", TOOLSETS] if config is None else ["--config", str(root / config)]
    if not isinstance(services, Mapping):
        options += ["--services", str(root / services)]
    elif services:
        table: Mapping[str, Any] = services.get("mcpServers", services)
        entries = {name: {"cwd": str(root), **entry} for name, entry in table.items()}
        path = folder / "services.json"
        path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        options += ["--services", str(path)]
    return options


class StdioSessions:
    """`await` it with a command to have a session of that server, which is one process until aclose()."""

    def __init__(self) -> None:
        self._watches: list[ProcessWatch] = []
        self._stack = AsyncExitStack()

    async def __call__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: StrPath | None = None,
        elicitation_callback: ElicitationCallback | None = None,
        fds: int = FDS,
        **options: Any,
    ) -> Session:
        """Start a server. `fds` is how many descriptors more than at its start it may hold at its end; `options` are
        those of a service, such as `era="legacy"`."""
        __tracebackhide__ = True
        client = connect(
            services=_table(command, env, cwd, options), elicitation_callback=elicitation_callback
        )
        await self._stack.enter_async_context(client)
        session = await self._stack.enter_async_context(client.session(services=[NAME], keep=False))
        watch = ProcessWatch(client, fds)
        self._watches.append(watch)
        self._stack.callback(watch.check_descriptors)
        return session

    async def aclose(self) -> list[str]:
        """End the servers and return what they left behind."""
        await self._stack.aclose()
        return [problem for watch in self._watches for problem in watch.report()]


class BlockingStdioSessions:
    """The same for tests that block: call it with a command."""

    def __init__(self) -> None:
        self._watches: list[ProcessWatch] = []
        self._stack = ExitStack()

    def __call__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: StrPath | None = None,
        elicitation_callback: BlockingElicitationCallback | None = None,
        fds: int = FDS,
        **options: Any,
    ) -> sync.Session:
        __tracebackhide__ = True
        client = sync.connect(
            services=_table(command, env, cwd, options), elicitation_callback=elicitation_callback
        )
        self._stack.enter_context(client)
        session = self._stack.enter_context(client.session(services=[NAME], keep=False))
        watch = ProcessWatch(client.inner, fds)
        self._watches.append(watch)
        self._stack.callback(watch.check_descriptors)
        return session

    def close(self) -> list[str]:
        """End the servers and return what they left behind."""
        self._stack.close()
        return [problem for watch in self._watches for problem in watch.report()]


def _table(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: StrPath | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    if isinstance(command, str | bytes | os.PathLike):
        raise TypeError(
            "the command is a list of a program and its arguments, such as [sys.executable, 'server.py']"
        )
    program, *args = (os.fspath(part) for part in command)
    folder = os.getcwd() if cwd is None else os.fspath(cwd)
    entry = {"command": program, "args": args, "env": dict(env or {}), "cwd": folder}
    # `${` would be a variable of this environment; here the test has filled in everything.
    return {NAME: {**_verbatim(entry), "connect": "eager", **options}}


def _verbatim(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_verbatim(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return {key: _verbatim(each) for key, each in value.items()}


class ProcessWatch:
    """The descriptors of a server at its start, to compare with those before its end; and the processes left after it."""

    def __init__(self, client: Client, fds: int) -> None:
        self._fds = fds
        self._ledger = _ledger(client)
        self._descriptors_at_start = {
            c.pid: Counter(procfs.open_descriptors(c.pid)) for c in self._ledger.children
        }
        self._family: dict[int, tuple[str, str]] = {}
        self._problems: list[str] = []

    def check_descriptors(self) -> None:
        """Report descriptors that the server opened since its start and still holds. Call it before the server ends."""
        for child in self._ledger.children:
            self._family |= _family(child.pid)
            before = self._descriptors_at_start.get(child.pid)
            new = Counter(procfs.open_descriptors(child.pid))
            new -= new if before is None else before
            if new.total() > self._fds:
                commonest = ", ".join(f"{count} x {target}" for target, count in new.most_common(5))
                self._problems.append(
                    f"{new.total()} open descriptors more than at its start, where {self._fds} are allowed: {commonest}"
                )

    def report(self) -> list[str]:
        """Return what it left behind, after it was ended."""
        for leftover in self._ledger.remaining:
            self._problems += [
                f"process {pid} ({name})" for pid, name in leftover.processes.items()
            ]
        return [*self._problems, *_describe_running(self._family)]


def _ledger(client: Client) -> Ledger:
    from ...tools.upstream.service import UpstreamService

    transport = client.requests.transport
    assert isinstance(transport, EmbeddedTransport)
    assert transport.gateway is not None
    service = transport.gateway.services[NAME]
    assert isinstance(service, UpstreamService)
    assert service.ledger is not None
    return service.ledger


def _family(pid: int) -> dict[int, tuple[str, str]]:
    """Return a process and all below it, each with its start time and its program; Linux only, else the process."""
    family: dict[int, tuple[str, str]] = {}
    started_at = procfs.start_time(pid)
    if started_at is not None:
        family[pid] = (started_at, procfs.program_name(pid))
        for child in procfs.children(pid):
            family |= _family(child)
    return family


def _describe_running(family: Mapping[int, tuple[str, str]]) -> list[str]:
    """Return the processes of these that still run after EXIT_SECONDS, which a killed process may need to disappear."""
    deadline = time.monotonic() + EXIT_SECONDS
    while time.monotonic() < deadline:
        if not any(procfs.start_time(pid) == started_at for pid, (started_at, _) in family.items()):
            return []
        time.sleep(0.01)
    return [
        f"process {pid} ({name})"
        for pid, (started_at, name) in family.items()
        if procfs.start_time(pid) == started_at
    ]


__all__ = [
    "BlockingStdioSessions",
    "ServerProcess",
    "StdioSessions",
    "ProcessWatch",
    "options_of",
    "says",
    "page_says",
    "page_lacks",
    "has_file",
    "value_at",
    "matches",
    "require_variable",
    "require_arguments",
    "AGO",
    "DATE",
    "DURATION",
    "ID",
    "NUMBER",
    "TIME",
]
