"""The gateways that are compared, and the commands that start each in front of the same counting server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from .plan import COUNTER, HERE, ROOT, python
from .processes import run_program

PROXY_ENVIRONMENT = ROOT / ".venv-mcp-proxy"
"""mcp-proxy cannot be imported beside mcp 2, so it has an environment of its own, from benchmarks/peers/uv.lock."""

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


def stdio_command(name: str, folder: Path) -> list[str] | None:
    """Return the command that serves the counter over stdio through a gateway, None where it cannot."""
    if name == "direct":
        return python(COUNTER)
    if name in HEADS:
        return statehold(folder / "data", statehold_config(folder, head=HEADS[name]))
    if name == "fastmcp" and (program := _fastmcp()) is not None:
        return [program, "run", str(_client_config(folder)), *_FASTMCP]
    return None


def http_command(name: str, folder: Path, port: int) -> list[str] | None:
    """Return the command that serves the counter over Streamable HTTP through a gateway."""
    if name == "direct":
        return python(COUNTER, "--transport", "http", "--port", str(port))
    if name in HEADS:
        serve = ("serve", "--port", str(port))
        return statehold(folder / "data", statehold_config(folder, head=HEADS[name]), *serve)
    if name == "fastmcp" and (program := _fastmcp()) is not None:
        over_http = ("--transport", "http", "--host", "127.0.0.1", "--port", str(port))
        return [program, "run", str(_client_config(folder)), *over_http, *_FASTMCP]
    if name == "mcp-proxy" and (program := _mcp_proxy()) is not None:
        return [program, "--port", str(port), "--log-level", "ERROR", "--", *python(COUNTER)]
    return None


_FASTMCP = ("--no-banner", "--skip-env", "--log-level", "ERROR")


def _fastmcp() -> str | None:
    return shutil.which("fastmcp", path=str(Path(sys.executable).parent))


def _mcp_proxy() -> str | None:
    program = PROXY_ENVIRONMENT / "bin" / "mcp-proxy"
    return str(program) if program.exists() else None


def _client_config(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mcp.json"
    counter = {"command": sys.executable, "args": [str(COUNTER)]}
    file.write_text(json.dumps({"mcpServers": {"counter": counter}}), encoding="utf-8")
    return file


def install_mcp_proxy() -> str | None:
    """Create the environment of mcp-proxy with uv; return the problem when that fails."""
    if _mcp_proxy() is not None:
        return None
    uv = shutil.which("uv")
    if uv is None:
        return "uv is not installed"
    sync = subprocess.run(
        [uv, "sync", "--quiet", "--locked", "--project", str(HERE / "peers")],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return None if sync.returncode == 0 else sync.stderr.strip()[-300:]


def _environment() -> dict[str, str]:
    return {**os.environ, "UV_PROJECT_ENVIRONMENT": str(PROXY_ENVIRONMENT)}


def log_file(folder: Path) -> TextIO:
    """Return a file for the stderr of a program."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "output.log").open("a", encoding="utf-8")


@contextmanager
def http_server(command: Sequence[str], folder: Path) -> Generator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    with run_program(command, log=folder / "output.log") as process:
        yield process


__all__ = [
    "http_command",
    "http_server",
    "install_mcp_proxy",
    "log_file",
    "statehold",
    "statehold_config",
    "stdio_command",
]
