"""Whether the browser shuts its pages into a sandbox of the system, and why not."""

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
    """`on` is what the browser is started with. With a `remedy` it does not start like that before that command."""

    on: bool
    reason: str
    remedy: str = ""


def turned_off(args: Sequence[str]) -> bool:
    """Whether flags of the configuration turn the sandbox off."""
    return any(arg.strip().partition("=")[0].lstrip("-") == "no-sandbox" for arg in args)


def sandbox(machine: Machine, program: Path | None = None) -> Sandbox:
    """Decide for a browser that this process starts. Without root it is always on."""
    if not machine.platform.startswith("linux"):
        return Sandbox(True, "as everywhere on this system")
    if machine.root:
        return Sandbox(False, "Chromium has none when it runs as root")
    setting = _refusal(machine)
    if setting is None:
        return Sandbox(True, "by user namespaces")
    if program is not None and _has_helper(machine, program):
        return Sandbox(True, "by its setuid helper")
    name, found, wanted = setting
    return Sandbox(True, f"but {name} is {found}", f"sysctl -w {name}={wanted}")


def _refusal(machine: Machine) -> tuple[str, str, str] | None:
    """Return the setting of the kernel that keeps users from making namespaces, its value, and the one that does not."""
    for name, refusing, allowing in _SETTINGS:
        path = machine.top / "proc/sys" / name.replace(".", "/")
        if _value(path) == refusing:
            return name, refusing, allowing
    return None


def _value(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _has_helper(machine: Machine, program: Path) -> bool:
    """Whether the setuid program that does without namespaces lies beside a browser."""
    folders = {Path(os.path.realpath(program)).parent, machine.top / "usr/lib/chromium"}
    for folder in folders:
        for name in ("chrome-sandbox", "chrome_sandbox"):
            try:
                if (folder / name).stat().st_mode & 0o4000:
                    return True
            except OSError:
                continue
    return False


__all__ = ["Sandbox", "sandbox", "turned_off"]
