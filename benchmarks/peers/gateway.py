"""A gateway that is compared: where its program comes from, and how it starts in front of the counter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from ..plan import ROOT, North

HERE = Path(__file__).resolve().parent
INSTALL_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Place:
    """The folder and the port of one start of a gateway, and a counter that is served over HTTP for it."""

    folder: Path
    port: int = 0
    counter_url: str = ""
    counter_pids: tuple[int, ...] = ()

    @property
    def listen(self) -> tuple[str, ...]:
        return ("--port", str(self.port))


Arguments: TypeAlias = Callable[[Place], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Gateway:
    """One row of the comparison.

    Its program is that of the environment that the lock file in `peers/NAME` pins, the one that `variable` names, or one
    of this Python's environment.
    """

    name: str
    stdio: Arguments | None = None
    """The arguments with which the program serves over stdio, and below over Streamable HTTP; None if it cannot."""
    http: Arguments | None = None
    package: str = ""
    """The package that has the version, and below its program, by default of the gateway's name."""
    script: str = ""
    variable: str = ""
    connects: bool = False
    """Whether it connects to a counter over HTTP. Others start the counter themselves, over stdio."""
    is_modern: bool = False
    """Whether it answers clients of 2026-07-28."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    prepare: Callable[[Place], Awaitable[None]] | None = None
    """Sets up one that serves over HTTP."""

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def program(self) -> Path:
        """The path of the program once it is installed."""
        script = self.script or self.name
        if self.variable:
            return Path(os.environ.get(self.variable, ""))
        if (self.folder / "package.json").exists():
            return self.folder / "node_modules" / ".bin" / script
        environment = self._environment if self.folder.exists() else Path(sys.executable).parents[1]
        return environment / "bin" / script

    @property
    def _environment(self) -> Path:
        return ROOT / f".venv-{self.name}"

    def command(self, over: North, place: Place) -> list[str] | None:
        arguments = self.stdio if over == "stdio" else self.http
        return None if arguments is None else [str(self.program), *arguments(place)]

    def version(self) -> str:
        package = self.package or self.name
        if self.variable:
            asked = [self.program, "--version"]
            shown = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)
            return (shown.stdout.splitlines() or ["not shown"])[0]
        if (self.folder / "package.json").exists():
            file = self.folder / "node_modules" / package / "package.json"
            return json.loads(file.read_text(encoding="utf-8"))["version"]
        if not self.folder.exists():
            return version(package)
        pattern = f"lib/python*/site-packages/{package.replace('-', '_')}-*.dist-info"
        [found] = self._environment.glob(pattern)
        return found.name.removesuffix(".dist-info").rpartition("-")[2]

    def install(self) -> str | None:
        """Install the program from its lock file, and return the problem if that fails."""
        if self.program.is_file():
            return None
        if self.variable or not self.folder.exists():
            return f"{self.variable or 'the group bench'} has no program"
        npm = (self.folder / "package.json").exists()
        tool = shutil.which("npm" if npm else "uv")
        if tool is None:
            return f"{'npm' if npm else 'uv'} is not installed"
        by_npm, by_uv = ("ci", "--no-audit", "--no-fund", "--ignore-scripts"), ("sync", "--locked")
        done = subprocess.run(
            [tool, *(by_npm if npm else by_uv)],
            cwd=self.folder,
            env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(self._environment)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:]
