"""Commands that call tools of one background server, started as installed."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .gateway_process import STATEHOLD, service, toml
from .shared_clients import SharedClients


@dataclass
class Commands:
    """A data folder, its configuration, and the log of its upstream."""

    shared: SharedClients
    log: Path

    def __call__(
        self, *words: str, given: bytes = b"", configured: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command. `configured`: it names the configuration, with which it starts a server."""
        ran = subprocess.run(
            self.line(*words, configured=configured),
            input=given,
            capture_output=True,
            timeout=90,
            check=False,
        )
        out, err = ran.stdout.decode(), ran.stderr.decode()
        return subprocess.CompletedProcess(ran.args, ran.returncode, out, err)

    def line(self, *words: str, configured: bool = True) -> list[str]:
        flags = ["--data", str(self.shared.data)]
        if configured:
            flags += ["--config", str(self.shared.config)]
        return [*STATEHOLD, *flags, *words]

    def output(self, *words: str, given: bytes = b"") -> str:
        """Return what a command that works writes to stdout."""
        ran = self(*words, given=given)
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        return ran.stdout


@contextmanager
def tool_commands(folder: Path) -> Generator[Commands]:
    """Commands over an upstream that asks. Their server ends with the block, and has to leave nothing behind."""
    config, log = folder / "statehold.toml", folder / "log.jsonl"
    upstream = service("asking", "--era", "legacy", "--log", str(log))
    config.write_text(toml({"services": {"asking": upstream}}))
    shared = SharedClients(config, folder / "data")
    yield Commands(shared, log)
    shared.stop()


__all__ = ["Commands", "tool_commands"]
