"""The places of browsers: PATH, the folders of the system, and Playwright's own folder. This module starts no process."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

SHELLS: Final = ("chromium-headless-shell", "chrome-headless-shell", "headless_shell")
_BROWSERS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "microsoft-edge-stable",
)
_LINUX: Final = (
    "usr/lib/chromium/chromium",
    "opt/google/chrome/chrome",
    "opt/microsoft/msedge/msedge",
)
_MAC: Final = ("Chromium", "Google Chrome", "Microsoft Edge")
_WINDOWS: Final = (
    "Chromium/Application/chrome.exe",
    "Google/Chrome/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
)
_WINDOWS_FOLDERS: Final = ("LOCALAPPDATA", "PROGRAMFILES", "PROGRAMFILES(X86)")
_SCRIPT_BYTES: Final = 2048


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that decide which browsers are available: those of this machine by default, others in tests."""

    platform: str = sys.platform
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    top: Path = Path("/")
    """The parent of the system's folders."""
    root: bool = field(default_factory=_is_root)

    @property
    def home(self) -> Path:
        folder = self.env.get("USERPROFILE" if self.platform == "win32" else "HOME")
        return Path(folder) if folder else Path.home()

    @property
    def display(self) -> bool:
        """Whether a window can be shown."""
        if not self.platform.startswith("linux"):
            return True
        return bool(self.env.get("DISPLAY") or self.env.get("WAYLAND_DISPLAY"))

    def which(self, name: str) -> Path | None:
        path = shutil.which(name, path=self.env.get("PATH", ""))
        return Path(path) if path else None


def shells(machine: Machine) -> Iterator[Path]:
    """Yield the headless shells that the system has."""
    debian = machine.top / "usr/lib/chromium/chromium-headless-shell"
    wrapper = machine.top / "usr/bin/chromium-headless-shell"
    for name in SHELLS:
        path = machine.which(name)
        # Debian's wrapper script stays the parent of the browser, and a kill ends only one of the two.
        if path is not None:
            yield debian if path == wrapper and is_program(debian) else path
    if is_program(debian):
        yield debian


def browsers(machine: Machine) -> Iterator[Path]:
    """Yield the full browsers that the system has, those of snap last: they cannot read our folders."""
    paths = list(dict.fromkeys(_browsers(machine)))
    yield from sorted(paths, key=_is_snap)


def _browsers(machine: Machine) -> Iterator[Path]:
    paths = (machine.which(name) for name in _BROWSERS)
    yield from (path for path in paths if path is not None)
    yield from filter(is_program, _usual_paths(machine))


def _usual_paths(machine: Machine) -> Iterable[Path]:
    if machine.platform == "darwin":
        folders = (machine.top / "Applications", machine.home / "Applications")
        return [f / f"{name}.app/Contents/MacOS/{name}" for name in _MAC for f in folders]
    if machine.platform == "win32":
        folders = [Path(machine.env[name]) for name in _WINDOWS_FOLDERS if machine.env.get(name)]
        return [folder / name for name in _WINDOWS for folder in folders]
    return [machine.top / name for name in _LINUX]


def _is_snap(path: Path) -> bool:
    if "snap" in path.parts or os.path.basename(os.path.realpath(path)) == "snap":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(_SCRIPT_BYTES)
    except OSError:
        return False
    return head.startswith(b"#!") and b"/snap/bin/" in head


def playwright_build(machine: Machine, *, shell: bool) -> Path | None:
    """Return the build that this version of Playwright was made for, or None if it was not downloaded."""
    name = "chromium-headless-shell" if shell else "chromium"
    revision = _playwright_builds().get(name, {}).get("revision")
    folder = playwright_folder(machine) / f"{name.replace('-', '_')}-{revision}"
    # Playwright writes this file last.
    if not (folder / "INSTALLATION_COMPLETE").exists():
        return None
    if shell:
        patterns = ("*/*headless-shell", "*/*headless_shell", "*/*headless-shell.exe")
    else:
        patterns = ("*/chrome", "*/chrome.exe", "*/*.app/Contents/MacOS/*")
    paths = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
    return next(filter(is_program, paths), None)


def playwright_version(*, shell: bool) -> str | None:
    """Return the version of the browser that this version of Playwright was made for."""
    name = "chromium-headless-shell" if shell else "chromium"
    return _playwright_builds().get(name, {}).get("browserVersion")


def ffmpeg_path(machine: Machine) -> Path:
    """Return where this version of Playwright looks for the program that makes videos."""
    revision = _playwright_builds().get("ffmpeg", {}).get("revision")
    names = {"darwin": "ffmpeg-mac", "win32": "ffmpeg-win64.exe"}
    name = names.get(machine.platform, "ffmpeg-linux")
    return playwright_folder(machine) / f"ffmpeg-{revision}" / name


def playwright_folder(machine: Machine) -> Path:
    """Return the folder where Playwright keeps the browsers that it downloaded."""
    folder = machine.env.get("PLAYWRIGHT_BROWSERS_PATH")
    package = playwright_package()
    if folder == "0" and package is not None:
        return package / ".local-browsers"
    if folder:
        return Path(machine.env.get("INIT_CWD") or os.getcwd()) / folder
    if machine.platform == "darwin":
        caches = machine.home / "Library" / "Caches"
    elif machine.platform == "win32":
        caches = Path(machine.env.get("LOCALAPPDATA") or machine.home / "AppData" / "Local")
    else:
        caches = Path(machine.env.get("XDG_CACHE_HOME") or machine.home / ".cache")
    return caches / "ms-playwright"


@cache
def playwright_package() -> Path | None:
    """Return the folder of Playwright's driver, or None if Playwright is not installed. Does not import Playwright."""
    spec = find_spec("playwright")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "driver" / "package"


@cache
def _playwright_builds() -> dict[str, dict[str, Any]]:
    """Return Playwright's descriptions of its browsers, by name; empty if they cannot be read."""
    package = playwright_package()
    try:
        assert package is not None
        content = json.loads((package / "browsers.json").read_bytes())
        return {entry["name"]: entry for entry in content["browsers"]}
    except (AssertionError, OSError, ValueError, KeyError, TypeError):
        return {}


def is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
