"""The decision whether a browser runs its pages in a sandbox of the system, with the reason if not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .executables import Machine

_SETTINGS: Final = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The decision for one browser: `on` tells whether it is started with a sandbox.

    If there is a `remedy`, the browser does not start with these options until that command was run.
    """

    on: bool
    reason: str
    remedy: str = ""


def is_turned_off(args: Sequence[str]) -> bool:
    """Return whether flags of the configuration turn the sandbox off."""
    return any(arg.strip().partition("=")[0].lstrip("-") == "no-sandbox" for arg in args)


def sandbox(machine: Machine, program: Path | None = None) -> Sandbox:
    """Return the decision for a browser that this process starts. Without root the sandbox is always on."""
    if not machine.platform.startswith("linux"):
        return Sandbox(True, "as everywhere on this system")
    if machine.root:
        return Sandbox(False, "Chromium has none when it runs as root")
    setting = _forbidding_setting(machine)
    if setting is None:
        return Sandbox(True, "by user namespaces")
    if program is not None and _has_helper(machine, program):
        return Sandbox(True, "by its setuid helper")
    name, value, required = setting
    return Sandbox(True, f"but {name} is {value}", f"sysctl -w {name}={required}")


def _forbidding_setting(machine: Machine) -> tuple[str, str, str] | None:
    """Return the kernel setting that forbids users to make namespaces, with its value and the value that permits it."""
    for name, forbidding, permitting in _SETTINGS:
        path = machine.top / "proc/sys" / name.replace(".", "/")
        if _value(path) == forbidding:
            return name, forbidding, permitting
    return None


def _value(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _has_helper(machine: Machine, program: Path) -> bool:
    """Return whether a browser comes with the setuid sandbox program, which needs no user namespaces."""
    folders = {Path(os.path.realpath(program)).parent, machine.top / "usr/lib/chromium"}
    for folder in folders:
        for name in ("chrome-sandbox", "chrome_sandbox"):
            try:
                if (folder / name).stat().st_mode & 0o4000:
                    return True
            except OSError:
                continue
    return False
