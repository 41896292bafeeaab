"""Checks of the programs and limits of the system and of the services, and the finding of a check."""

from __future__ import annotations

import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import anyio

from ...server.config.load import find_missing_path
from ...server.config.model import Config, ServiceConfig
from ...server.gateway.names import configured_renames
from ...server.process.open_files import file_limit
from ...sessions.one_line import plural
from ...tools.browser.config import BrowserConfig
from ...tools.upstream.config import UnusableConfig, UpstreamConfig
from ..services import check_all


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A `warn` may stay as it is, a `fail` may not."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""


CHROMIUM = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_ANSWER_SECONDS = 15.0
_FILES_PER_SESSION = 12  # pipes, sockets and the loop's own, with a margin


def check_python(config: Config) -> Iterator[Finding]:
    """Look at the interpreter and the packages that matter."""
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    uses = {"statehold": "", "mcp": "", "playwright": "for a browser", "uvloop": "faster"}
    for name, use in uses.items():
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            if not use:
                yield Finding(name, "fail", "not installed", "install statehold again")
            elif name != "uvloop" or sys.platform != "win32":
                yield Finding(name, "warn", "not installed", f"pip install {name} ({use})")


def check_programs(config: Config) -> Iterator[Finding]:
    """Look for the programs that start many MCP servers. Missing ones matter only when a service uses them."""
    commands = [Path(service.command or "").name for service in config.upstreams().values()]
    for name in ("node", "npx"):
        is_used = "npx" in commands or name in commands
        yield _check_program(name, is_used, "install Node.js 20 or newer from https://nodejs.org")
    words = [word for s in config.upstreams().values() for word in s.args]
    if any("playwright" in word for word in words):
        yield _check_chromium()


def _check_chromium() -> Finding:
    """Look for the browser of a Playwright server; check_browser() looks for that of a built-in service."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is not None:
        return Finding("chromium", "ok", path)
    remedy = "install Chromium (apt install chromium), or: npx playwright install chromium"
    return Finding("chromium", "warn", "not found", remedy)


def _check_program(name: str, is_used: bool, remedy: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        detail = "not found" if is_used else "not found, and no service needs it"
        return Finding(name, "fail" if is_used else "ok", detail, remedy)
    if name != "node":  # the others are scripts of its, and slow to ask
        return Finding(name, "ok", path)
    try:
        output = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_SECONDS,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return Finding(name, "fail" if is_used else "warn", f"{path} does not start", remedy)
    return Finding(name, "ok", f"{output.stdout.strip()} at {path}")


def check_services(config: Config) -> Iterator[Finding]:
    """Look at the settings, the paths and the program of each service, and start each MCP server in which all is right."""
    startable: dict[str, UpstreamConfig] = {}
    for name, service in config.enabled_services().items():
        problem = _problem_of_settings(service)
        if problem is not None:
            # check_browser() has the line of a browser.
            title = (
                f"settings of {name}" if isinstance(service, BrowserConfig) else f"service {name}"
            )
            detail, _, remedy = problem.rpartition("; ")
            yield Finding(title, "fail", detail, remedy)
        elif isinstance(service, UpstreamConfig):
            finding = _find_program_of(name, service)
            if finding is None:
                startable[name] = service
            else:
                yield finding
    yield from _start_services(config, startable)


def _start_services(config: Config, services: Mapping[str, UpstreamConfig]) -> Iterator[Finding]:
    """Start each service once, as `statehold services check` does."""
    if not services:
        return
    for check in anyio.run(partial(check_all, config, services, sharing=False)):
        title, service = f"service {check.service}", services[check.service]
        if check.ok:
            where = _origin(service.url or "") if service.command is None else service.command
            yield Finding(title, "ok", f"{where} started, {plural(check.tools, 'tool')}")
        else:
            remedy = f"see statehold services check {check.service}, and correct its settings"
            yield Finding(title, "fail", check.error or "does not start", remedy)


def _problem_of_settings(service: ServiceConfig) -> str | None:
    if isinstance(service, UnusableConfig):
        return service.problem
    missing = find_missing_path(service)
    if missing is None:
        return None
    detail, _, remedy = missing[1].rpartition("; ")
    return f"{missing[0]}: {detail or remedy}; {remedy if detail else 'correct the file'}"


def _find_program_of(name: str, service: UpstreamConfig) -> Finding | None:
    """Return the finding of a service whose program is missing."""
    if service.command is None or _find_program(service.command, service.env) is not None:
        return None
    remedy = f"install {service.command}, or give its full path as command"
    return Finding(f"service {name}", "fail", f"no program {service.command}", remedy)


def check_tool_names(config: Config) -> Iterator[Finding]:
    """List the renamed tools and prompts, as far as services were started before with this configuration."""
    for name, line in configured_renames(config, {}, {}).items():
        detail, _, remedy = line.rpartition("; ")
        yield Finding(f"tools of {name}", "warn", detail, remedy)


def _find_program(command: str, env: Mapping[str, str]) -> str | None:
    return shutil.which(command.replace("{python}", sys.executable), path=env.get("PATH"))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def check_files(config: Config) -> Iterator[Finding]:
    """Compare the limit of open files with what the configured number of sessions needs."""
    limit = file_limit()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    services = max(1, len(config.enabled_services()))
    needed_files = 256 + config.limits.live_sessions * services * _FILES_PER_SESSION
    if limit >= needed_files:
        yield Finding("open files", "ok", f"{limit} allowed")
        return
    remedy = (
        f"ulimit -n {needed_files}"
        if hard == resource.RLIM_INFINITY or hard >= needed_files
        else ""
    )
    remedy += f"{' or ' if remedy else ''}lower limits.live_sessions"
    yield Finding("open files", "warn", f"{limit} allowed, {needed_files} may be needed", remedy)
