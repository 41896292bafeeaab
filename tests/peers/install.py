"""Puts the real peers in place: `python tests/peers/install.py [npm] [python] [chromium] [shell] [screen] [postgres]
[mariadb] [nginx] [haproxy]`, by default all.

Idempotent, and safe when several processes run it at once: a part is installed again only when its lock file changed.
Messages go to stderr; `chromium` and `shell` print the path of a browser on stdout: any Chromium, and the headless shell.
`screen` is a screen without a monitor and a program that types and clicks on it; the parts
after it are the programs of servers, none of which is left running. Exit 1 with one line that names the remedy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
BROWSERS = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
APPLICATIONS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
SHELLS = ("chromium-headless-shell", "chrome-headless-shell", "headless_shell")
PLAYWRIGHT_SHELLS = (
    "chromium_headless_shell-*/*/headless_shell",
    "chromium_headless_shell-*/*/chrome-headless-shell",
)
PLAYWRIGHT_OWN = (
    *PLAYWRIGHT_SHELLS,
    "chromium-*/*/chrome",
    "chromium-*/*/*.app/Contents/MacOS/*",
)
NODE = "Install Node.js 20 or newer with npm."


class Missing(Exception):
    """Raised when a part cannot be put in place. Its message names the remedy."""


def npm() -> None:
    """Install the npm servers and clients of package-lock.json into node_modules, without their browsers and scripts."""
    locked = [HERE / "package.json", HERE / "package-lock.json"]
    with _held(locked[1]):
        stamp = HERE / "node_modules" / ".statehold-installed"
        if _is_current(stamp, locked):
            return
        program = _program("npm", NODE)
        _check_node()
        _say("installing the npm servers and clients into tests/peers/node_modules")
        command = [program, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        environment = {**os.environ, "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"}
        _run(command, "Check that the npm registry can be reached.", environment)
        stamp.write_text(_digest(locked))


def python() -> None:
    """Bring the second Python environment (mcp 1, langchain-mcp-adapters, pydantic-ai) to its lock file."""
    folder = HERE / "python"
    locked = [folder / "pyproject.toml", folder / "uv.lock"]
    with _held(locked[1]):
        stamp = folder / ".venv" / ".statehold-installed"
        if _is_current(stamp, locked):
            return
        program = _program("uv", "Install uv (python -m pip install uv).")
        _say("installing the second Python environment into tests/peers/python/.venv")
        environment = {k: v for k, v in os.environ.items() if k not in _OTHER_ENVIRONMENT}
        command = [program, "sync", "--frozen", "--project", str(folder)]
        _run(command, "Check that the Python package index can be reached.", environment)
        stamp.write_text(_digest(locked))


_OTHER_ENVIRONMENT = {"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "PYTHONHOME"}


def chromium() -> Path:
    """Find a Chromium; as root on Debian install one."""
    remedy = "Install Chromium (Debian: apt-get install chromium), or set STATEHOLD_CHROMIUM to its path."
    return _installed("chromium", _found_chromium, remedy)


def shell() -> Path:
    """Find a headless shell; as root on Debian install one."""
    remedy = (
        "Install the headless shell (Debian: apt-get install chromium-headless-shell; elsewhere: "
        "python -m playwright install --only-shell chromium), or set STATEHOLD_HEADLESS_SHELL to its path."
    )
    return _installed("chromium-headless-shell", _found_shell, remedy)


def screen() -> None:
    """Find Xvfb and xdotool; as root on Debian install them."""
    for package, program in (("xvfb", "Xvfb"), ("xdotool", "xdotool")):
        remedy = f"Install {program} (Debian: apt-get install {package})."
        _installed(package, lambda program=program: _on_path((program,)), remedy)


def postgres() -> None:
    """Find the server of PostgreSQL; as root on Debian install it."""
    remedy = "Install PostgreSQL (Debian: apt-get install postgresql)."
    _installed("postgresql", _found_postgres, remedy)


def mariadb() -> None:
    """Find the server of MariaDB; as root on Debian install it."""
    remedy = "Install MariaDB (Debian: apt-get install mariadb-server)."
    _installed("mariadb-server", lambda: _found_server("mariadbd"), remedy)


def nginx() -> None:
    """Find nginx; as root on Debian install it."""
    remedy = "Install nginx (Debian: apt-get install nginx-light)."
    _installed("nginx-light", lambda: _found_server("nginx"), remedy)


def haproxy() -> None:
    """Find HAProxy; as root on Debian install it."""
    remedy = "Install HAProxy (Debian: apt-get install haproxy)."
    _installed("haproxy", lambda: _found_server("haproxy"), remedy)


def _installed(package: str, find: Callable[[], Path | None], remedy: str) -> Path:
    found = find()
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise Missing(f"no {package} found. {remedy}")
    with _held(Path(__file__)):
        found = find()
        if found is None:
            _say(f"installing {package} with apt")
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            _run([apt, "update", "-q"], remedy, environment)
            install = [apt, "install", "-q", "-y", "--no-install-recommends", package]
            _run(install, remedy, environment)
            found = find()
    if found is None:
        raise Missing(f"no {package} found after apt installed it. {remedy}")
    return found


def _found_chromium() -> Path | None:
    named = os.environ.get("STATEHOLD_CHROMIUM")
    if named:
        return Path(named)
    applications = (Path(path) for path in APPLICATIONS if os.path.exists(path))
    return _on_path(BROWSERS) or next(applications, None) or _of_playwright(PLAYWRIGHT_OWN)


def _found_shell() -> Path | None:
    named = os.environ.get("STATEHOLD_HEADLESS_SHELL")
    if named:
        return Path(named)
    return _on_path(SHELLS) or _of_playwright(PLAYWRIGHT_SHELLS)


def _found_postgres() -> Path | None:
    of_debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return _on_path(("initdb",)) or (of_debian[-1] if of_debian else None)


def _found_server(name: str) -> Path | None:
    beside = Path("/usr/sbin", name)
    return _on_path((name,)) or (beside if beside.exists() else None)


def _on_path(names: tuple[str, ...]) -> Path | None:
    return next((Path(path) for name in names if (path := shutil.which(name))), None)


def _of_playwright(patterns: tuple[str, ...]) -> Path | None:
    for cache in (Path.home() / ".cache", Path.home() / "Library" / "Caches"):
        for pattern in patterns:
            for path in sorted((cache / "ms-playwright").glob(pattern), reverse=True):
                return path
    return None


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock on an existing file, so that parallel test processes install once."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_current(stamp: Path, locked: list[Path]) -> bool:
    return stamp.exists() and stamp.read_text() == _digest(locked)


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def _program(name: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed. {remedy}")
    return found


def _check_node() -> None:
    said = subprocess.run([_program("node", NODE), "--version"], capture_output=True, text=True)
    major = said.stdout.strip().removeprefix("v").partition(".")[0]
    if not major.isdecimal() or int(major) < 20:
        raise Missing(f"node {said.stdout.strip()} is too old. {NODE}")


def _run(command: list[str], remedy: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=HERE,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.buffer.write(done.stdout)
        raise Missing(f"{' '.join(command)} failed with exit code {done.returncode}. {remedy}")


def _say(what: str) -> None:
    print(f"tests/peers: {what} ...", file=sys.stderr, flush=True)  # noqa: T201


def main(parts: list[str]) -> int:
    known: dict[str, Callable[[], Path | None]] = {
        "npm": npm,
        "python": python,
        "chromium": chromium,
        "shell": shell,
        "screen": screen,
        "postgres": postgres,
        "mariadb": mariadb,
        "nginx": nginx,
        "haproxy": haproxy,
    }
    unknown = sorted(set(parts) - set(known))
    if unknown:
        _say(f"unknown part {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    for part in parts or known:
        try:
            result = known[part]()
        except Missing as problem:
            print(f"tests/peers: {problem}", file=sys.stderr)  # noqa: T201
            return 1
        if result is not None:
            print(result)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
