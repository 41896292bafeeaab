"""The server of the keeper's test, which is killed and started again, and its upstreams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from ..gateways import statehold
from ..plan import QUICK, SHELL
from ..processes import free_port
from ..soak.programs import HttpUpstream, Programs, serving

LINGER_SECONDS: Final = 60
SHORT_LINGER_SECONDS: Final = 5
"""Shorter than check_processes() waits."""
CONFIG: Final = """\
[history]
receipts = 1000000
receipts_bytes = 4294967296
[keeper]
linger_seconds = {linger}
[services.quick]
command = {python}
args = ["-S", "-E", {quick}, "--log", {truth}, "--era", "modern"]
prefix = "quick_"
[services.old]
command = {python}
args = ["-S", "-E", {quick}, "--log", {truth}, "--era", "legacy"]
prefix = "old_"
[services.notebook]
command = {python}
args = ["-m", "statehold.shell.demo.server"]
prefix = "notebook_"
[services.shell]
command = {python}
args = ["-S", "-E", {shell}, "--log", {truth}]
prefix = "shell_"
[services.web]
url = "http://127.0.0.1:{web}/mcp"
prefix = "web_"
[services.oldweb]
url = "http://127.0.0.1:{oldweb}/mcp"
prefix = "oldweb_"
[services.browser]
prefix = ""
"""


class KilledServer:
    """A `statehold serve` with upstreams over stdio and HTTP. It lives from start() until kill(), and may start again.

    close() ends the server and the HTTP upstreams. Idempotent.
    """

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.truth = folder / "truth.jsonl"
        """Each upstream but the notebook appends a line for each call before it runs it."""
        self.port = free_port()
        self.programs = Programs(folder)
        self.programs.logs.mkdir(parents=True)
        self.data.mkdir(mode=0o700)
        self._upstreams = [
            HttpUpstream(self.programs, self.truth, "modern"),
            HttpUpstream(self.programs, self.truth, "legacy"),
        ]
        self._config = folder / "statehold.toml"
        self._process: subprocess.Popen[bytes] | None = None

    async def start_upstreams(self) -> None:
        for upstream in self._upstreams:
            await upstream.start()

    def _write_config(self, linger_seconds: float) -> None:
        web, oldweb = self._upstreams
        texts = {"python": sys.executable, "quick": QUICK, "shell": SHELL, "truth": self.truth}
        quoted = {name: json.dumps(str(text)) for name, text in texts.items()}
        self._config.write_text(
            CONFIG.format(linger=linger_seconds, web=web.port, oldweb=oldweb.port, **quoted),
            encoding="utf-8",
        )

    async def start(self, linger_seconds: float = LINGER_SECONDS) -> None:
        """Start the server and wait until it serves."""
        self._write_config(linger_seconds)
        serve = ("serve", "--port", str(self.port))
        self._process = self.programs.start("server", statehold(self.data, self._config, *serve))
        await serving(self.port, self._process)

    async def kill(self) -> None:
        process = self._process
        assert process is not None
        process.kill()
        await anyio.to_thread.run_sync(process.wait)

    def read_truth(self) -> list[dict[str, Any]]:
        lines = self.truth.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self.programs.close()
