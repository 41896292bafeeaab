"""Puts the real peers in place: `python tests/peers/install.py [npm] [mermaid] [python] [chromium] [shell] [screen]
[postgres] [mariadb] [nginx] [haproxy] [prometheus] [glewlwyd]`, by default all.

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
from dataclasses import dataclass
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
BROWSER_PARTS = ("chromium", "shell")
NODE = "Install Node.js 20 or newer with npm."


class Missing(Exception):
    """Raised when a part cannot be put in place. Its message names the remedy."""


def npm() -> None:
    """Install the npm servers and clients of package-lock.json into node_modules, without their browsers and scripts."""
    _install_npm(HERE, "the npm servers and clients")


def mermaid() -> None:
    """Install the program that draws diagrams. It is apart, since the quick tests do without it."""
    _install_npm(HERE / "pictures", "the program that draws diagrams")


def _install_npm(folder: Path, title: str) -> None:
    locked = [folder / "package.json", folder / "package-lock.json"]
    with _held(locked[1]):
        stamp = folder / "node_modules" / ".statehold-installed"
        if _is_current(stamp, locked):
            return
        program = _program("npm", NODE)
        _check_node()
        _say(f"installing {title}")
        command = [program, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        environment = {**os.environ, "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"}
        _run(command, "Check that the npm registry can be reached.", environment, folder)
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


@dataclass(frozen=True)
class Package:
    """A package of Debian with the program that tests need, which may also have come from elsewhere."""

    name: str
    find: Callable[[], Path | None]
    remedy: str


def _packages() -> dict[str, list[Package]]:
    """Return the packages of each part."""

    def program(package: str, name: str, title: str) -> Package:
        remedy = f"Install {title} (Debian: apt-get install {package})."
        return Package(package, lambda: _found_program(name), remedy)

    return {
        "chromium": [
            Package(
                "chromium",
                _found_chromium,
                "Install Chromium (Debian: apt-get install chromium; elsewhere: uv run statehold doctor --install), or "
                "set STATEHOLD_CHROMIUM to its path.",
            )
        ],
        "shell": [
            Package(
                "chromium-headless-shell",
                _found_shell,
                "Install the headless shell (Debian: apt-get install chromium-headless-shell; elsewhere: python -m "
                "playwright install --only-shell chromium), or set STATEHOLD_HEADLESS_SHELL to its path.",
            )
        ],
        "screen": [program("xvfb", "Xvfb", "Xvfb")],
        "postgres": [
            Package(
                "postgresql",
                _found_postgres,
                "Install PostgreSQL (Debian: apt-get install postgresql).",
            )
        ],
        "mariadb": [program("mariadb-server", "mariadbd", "MariaDB")],
        "nginx": [program("nginx-light", "nginx", "nginx")],
        "haproxy": [program("haproxy", "haproxy", "HAProxy")],
        "prometheus": [program("prometheus", "promtool", "Prometheus")],
        "glewlwyd": [program("glewlwyd", "glewlwyd", "Glewlwyd")],
    }


def install_packages(packages: list[Package]) -> None:
    """Install those that are not found, as root on Debian; Raises Missing for the first that is not found afterwards."""
    missing = [package for package in packages if package.find() is None]
    apt = shutil.which("apt-get")
    if missing and apt is not None and os.geteuid() == 0:
        with _held(Path(__file__)):
            missing = [package for package in packages if package.find() is None]
            if missing:
                _apt(apt, missing)
        missing = [package for package in packages if package.find() is None]
    if missing:
        raise Missing(f"no {missing[0].name} found. {missing[0].remedy}")


def _apt(apt: str, packages: list[Package]) -> None:
    names = [package.name for package in packages]
    remedy = " ".join(package.remedy for package in packages)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _say(f"installing {' '.join(names)} with apt")
    _run([apt, "update", "-q"], remedy, environment)
    _run([apt, "install", "-q", "-y", "--no-install-recommends", *names], remedy, environment)


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


def _found_program(name: str) -> Path | None:
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
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{name} is not installed. {remedy}")
    return path


def _check_node() -> None:
    version = subprocess.run([_program("node", NODE), "--version"], capture_output=True, text=True)
    major = version.stdout.strip().removeprefix("v").partition(".")[0]
    if not major.isdecimal() or int(major) < 20:
        raise Missing(f"node {version.stdout.strip()} is too old. {NODE}")


def _run(command: list[str], remedy: str, environment: dict[str, str], folder: Path = HERE) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
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
    packages = _packages()
    locked: dict[str, Callable[[], None]] = {"npm": npm, "mermaid": mermaid, "python": python}
    known = [*locked, *packages]
    unknown = sorted(set(parts) - set(known))
    if unknown:
        _say(f"unknown part {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    try:
        chosen = [packages[part] for part in parts or known if part in packages]
        install_packages([package for part in chosen for package in part])
        for part in parts or known:
            if part in locked:
                locked[part]()
            elif part in BROWSER_PARTS:
                print(packages[part][0].find())  # noqa: T201
    except Missing as problem:
        print(f"tests/peers: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
