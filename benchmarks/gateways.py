"""The commands that start Statehold, or another gateway, in front of the same counting server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from .peers.gateway import Gateway, Place
from .peers.rows import PEERS
from .plan import COUNTER, python
from .processes import run_program

STATEHOLD = ("-m", "statehold")

HEADS = {
    "statehold": "",
    "journal off": 'journal = "off"',
    "facts off": "[history]\nfacts = false",
    "audit on": 'audit = "on"',
    "audit required": 'audit = "required"',
    "no keeper": "[keeper]\nlinger_seconds = 0",
}
"""The first lines of the configuration of each Statehold, by the name of its route."""

CONFIG = """\
{head}
[limits]
live_sessions = 1000
sessions_per_principal = 100000
[services.{name}]
command = {command}
args = {args}
{more}
"""


def statehold_config(
    folder: Path, upstream: Path = COUNTER, *, more: str = "", head: str = ""
) -> Path:
    """Write the configuration of a Statehold with one service and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "statehold.toml"
    command, args = json.dumps(sys.executable), json.dumps([str(upstream)])
    file.write_text(
        CONFIG.format(name=upstream.stem, command=command, args=args, more=more, head=head),
        encoding="utf-8",
    )
    return file


def statehold(folder: Path, config: Path, *arguments: str) -> list[str]:
    return [*python(*STATEHOLD), *arguments, "--config", str(config), "--data", str(folder)]


def stdio_command(name: str, place: Place) -> list[str] | None:
    """Return the command that serves the counter over stdio through a gateway, None where it cannot."""
    if name in HEADS:
        config = statehold_config(place.folder, head=HEADS[name])
        return statehold(place.folder / "data", config)
    return peer(name).command("stdio", place)


def http_command(name: str, place: Place) -> list[str] | None:
    """Return the command that serves the counter over Streamable HTTP through a gateway."""
    if name in HEADS:
        config = statehold_config(place.folder, head=HEADS[name])
        return statehold(place.folder / "data", config, "serve", "--port", str(place.port))
    return peer(name).command("http", place)


def peer(name: str) -> Gateway:
    """Return the gateway with a name. Raises LookupError: there is none."""
    found = [gateway for gateway in PEERS if gateway.name == name]
    if not found:
        raise LookupError(f"no gateway {name!r}; there are {[gateway.name for gateway in PEERS]}")
    return found[0]


def log_file(folder: Path) -> TextIO:
    """Return a file for the stderr of a program."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "output.log").open("a", encoding="utf-8")


@contextmanager
def http_server(
    command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    with run_program(command, log=folder / "output.log", env=env) as process:
        yield process


__all__ = [
    "http_command",
    "http_server",
    "log_file",
    "peer",
    "statehold",
    "statehold_config",
    "stdio_command",
]
