"""The doctor's checks of the system: Python, programs, the limits of the process."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...config.model import Config
from ...open_files import file_limit
from .finding import Finding

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
    for name, needed in (("statehold", True), ("mcp", True), ("uvloop", False)):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            if needed:
                yield Finding(name, "fail", "not installed", "install statehold again")
            elif sys.platform != "win32":
                yield Finding(name, "warn", "not installed", f"pip install {name} (faster)")


def check_programs(config: Config) -> Iterator[Finding]:
    """Look for the programs that start many MCP servers. Missing ones matter only when a service uses them."""
    commands = [Path(service.command or "").name for service in config.upstreams().values()]
    for name in ("node", "npx"):
        used = "npx" in commands or name in commands
        yield _program(name, used, "install Node.js 20 or newer from https://nodejs.org")
    words = [word for s in config.upstreams().values() for word in s.args]
    if any("playwright" in word for word in words):
        yield _chromium()


def _chromium() -> Finding:
    """Look for the browser of a Playwright server; check_browser() looks for that of a built-in service."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is not None:
        return Finding("chromium", "ok", found)
    remedy = "install Chromium (apt install chromium), or: npx playwright install chromium"
    return Finding("chromium", "warn", "not found", remedy)


def _program(name: str, used: bool, remedy: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        detail = "not found" if used else "not found, and no service needs it"
        return Finding(name, "fail" if used else "ok", detail, remedy)
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
        return Finding(name, "fail" if used else "warn", f"{path} does not start", remedy)
    return Finding(name, "ok", f"{output.stdout.strip()} at {path}")


def check_services(config: Config) -> Iterator[Finding]:
    """Look for the program of each service. `statehold services check` also starts it."""
    for name, service in config.upstreams().items():
        if service.command is None:
            yield Finding(f"service {name}", "ok", f"at {_origin(service.url or '')}")
            continue
        path = _find(service.command, service.env)
        if path is not None:
            yield Finding(f"service {name}", "ok", path)
        else:
            remedy = f"install {service.command}, or give its full path as command"
            yield Finding(f"service {name}", "fail", f"no program {service.command}", remedy)


def check_tool_names(config: Config) -> Iterator[Finding]:
    """List the renamed tools, as far as services were started before with this configuration."""
    from ....tools.upstream.identity import config_hash
    from ....tools.upstream.profile_file import ProfileFile
    from ...gateway.tool_names import configured_renames

    kept = {
        name: ProfileFile(config.data, name, config_hash(service)).read()
        for name, service in config.upstreams().items()
    }
    tools = {name: profile.tools for name, profile in kept.items() if profile is not None}
    for name, line in configured_renames(config, tools).items():
        renamed, _, remedy = line.rpartition("; ")
        yield Finding(f"tools of {name}", "warn", renamed, remedy)


def _find(command: str, env: Mapping[str, str]) -> str | None:
    return shutil.which(command.replace("{python}", sys.executable), path=env.get("PATH"))


def _origin(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def check_files(config: Config) -> Iterator[Finding]:
    """Compare the limit of open files with what the configured number of sessions needs."""
    found = file_limit()
    if found is None:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    services = max(1, len(config.enabled_services()))
    needed = 256 + config.limits.live_sessions * services * _FILES_PER_SESSION
    if found >= needed:
        yield Finding("open files", "ok", f"{found} allowed")
        return
    remedy = f"ulimit -n {needed}" if hard == resource.RLIM_INFINITY or hard >= needed else ""
    remedy += f"{' or ' if remedy else ''}lower limits.live_sessions"
    yield Finding("open files", "warn", f"{found} allowed, {needed} may be needed", remedy)
