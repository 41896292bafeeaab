"""The choice of the browser to start, and its launch options.

The choice looks at files only: it starts no process and takes some milliseconds at most. Only read_version() starts one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ....sessions.errors import ServiceUnavailable
from ..config import BrowserConfig
from .executables import Machine, browsers, is_program, playwright_build, playwright_version, shells
from .flags import join_flags, slim
from .sandbox import sandbox
from .user_agent import NOT_AUTOMATED, Brand, flags, user_agent

Kind = Literal["shell", "chromium", "chrome", "edge", "playwright"]

INSTALL_COMMAND: Final = "statehold doctor --install"
"""The command that installs a missing browser."""

WEBMCP: Final = "--enable-features=WebMCP"

OWN_CHANNELS: Final = {"chromium": False, "chromium-headless-shell": True}
"""Playwright's names of its own builds, and whether they are headless shells."""
_VERSION: Final = re.compile(r"\d+(?:\.\d+){1,3}")
_VERSION_SECONDS: Final = 15.0


class NoBrowser(ServiceUnavailable):
    """Raised when there is no browser to start. The message says what to do; a retry does not help."""

    retryable = False
    recovery = (
        "Ask the operator of the server to install the browser, with `statehold doctor --install`."
    )


@dataclass(frozen=True, slots=True)
class BrowserChoice:
    """A browser that can be started."""

    path: str | None
    channel: str | None
    """Playwright's name of the browser, if only Playwright knows its path."""
    kind: Kind
    shell: bool = False
    """Whether it is a headless shell: smaller, and without windows."""
    version: str | None = None
    """The version, if known without starting the browser; see read_version()."""
    flags: tuple[str, ...] = ()

    @property
    def brand(self) -> Brand:
        """The brand that it names beside Chromium."""
        if self.kind == "edge":
            return "Microsoft Edge"
        return "Google Chrome" if self.kind == "chrome" and not self.shell else None


def find_browser(config: BrowserConfig, machine: Machine | None = None) -> BrowserChoice:
    """Return the configured browser, or the first available one if none is configured.

    Raises:
        NoBrowser: There is no browser, the configured one is missing, or there is no display for its window.
    """
    machine = machine or Machine()
    if not config.headless and not machine.display:
        raise NoBrowser(
            "A browser window needs a display, and there is none: set `headless` to true, or start the server in one "
            "(DISPLAY), for example with xvfb-run."
        )
    if config.executable is not None:
        choice = _from_executable(config.executable, machine)
    elif config.channel is not None:
        choice = _from_channel(config.channel, machine)
    else:
        choice = next(_available(machine, headless=config.headless), None)
        if choice is None:
            raise NoBrowser(f"No browser was found: {remedy(machine, config.headless)}.")
    if choice.shell and not config.headless:
        raise NoBrowser(
            "The configured browser is a headless shell, which has no windows: set `headless` to true, or name another."
        )
    return choice


def _from_executable(executable: str, machine: Machine) -> BrowserChoice:
    path = Path(executable).expanduser()
    program = path if is_program(path) else machine.which(executable)
    if program is None:
        raise NoBrowser(
            "The browser that `executable` names is not there, or may not be run: correct it, or leave it out."
        )
    return _from_path(program)


def _from_channel(channel: str, machine: Machine) -> BrowserChoice:
    if channel in OWN_CHANNELS:
        choice = _playwright_browser(machine, shell=OWN_CHANNELS[channel])
        if choice is None:
            instruction = remedy(machine, OWN_CHANNELS[channel], own=True)
            raise NoBrowser(f"The browser of `channel` is not there: {instruction}.")
        return choice
    kind: Kind = "edge" if channel.startswith("msedge") else "chrome"
    return BrowserChoice(None, channel, kind, flags=slim())


def _available(machine: Machine, *, headless: bool) -> Iterator[BrowserChoice]:
    if headless:
        yield from map(_from_path, shells(machine))
    for shell in (True, False) if headless else (False,):
        choice = _playwright_browser(machine, shell=shell)
        if choice is not None:
            yield choice
    yield from map(_from_path, browsers(machine))


def _playwright_browser(machine: Machine, *, shell: bool) -> BrowserChoice | None:
    path = playwright_build(machine, shell=shell)
    if path is None:
        return None
    version = playwright_version(shell=shell)
    flags = () if shell else slim()
    return BrowserChoice(str(path), None, "playwright", shell=shell, version=version, flags=flags)


def _from_path(path: Path) -> BrowserChoice:
    kind = _kind(path.name.lower())
    shell = kind == "shell"
    return BrowserChoice(str(path), None, kind, shell=shell, flags=() if shell else slim())


def _kind(name: str) -> Kind:
    if "headless" in name:
        return "shell"
    if "edge" in name:
        return "edge"
    return "chrome" if "chrome" in name else "chromium"


def launch_options(
    choice: BrowserChoice, config: BrowserConfig, machine: Machine | None = None
) -> dict[str, Any]:
    """Return the arguments of Playwright's `chromium.launch()` for a browser that was found."""
    machine = machine or Machine()
    program = None if choice.path is None else Path(choice.path)
    agent = config.user_agent
    if agent is None and choice.version is not None:
        agent = user_agent(choice.version, choice.brand)
    headless_flags = flags(agent, shell=choice.shell) if config.headless else ()
    webmcp_flags = (WEBMCP,) if "webmcp" in config.caps else ()
    options: dict[str, Any] = {
        "executable_path": choice.path,
        "channel": choice.channel,
        "headless": config.headless,
        "chromium_sandbox": sandbox(machine, program).on,
        "args": join_flags(
            *choice.flags, NOT_AUTOMATED, *headless_flags, *webmcp_flags, *config.args
        ),
    }
    return {name: value for name, value in options.items() if value is not None}


def advice(machine: Machine, headless: bool, *, own: bool = False) -> str:
    """Return the command that installs a browser by hand. `own`: only Playwright's own browser will do."""
    if is_debian(machine) and not own:
        return f"apt-get install {debian_package(headless)}"
    return f"python -m playwright install {'--only-shell' if headless else '--no-shell'} chromium"


def remedy(machine: Machine, headless: bool, *, own: bool = False) -> str:
    """Return instructions to install a browser: by `doctor --install`, or by hand."""
    return f"run `{INSTALL_COMMAND}`, or `{advice(machine, headless, own=own)}`"


def is_debian(machine: Machine) -> bool:
    """Return whether this is Debian with apt-get, whose Chromium package is not a snap."""
    try:
        lines = (machine.top / "etc/os-release").read_text().split()
    except OSError:
        return False
    return bool({"ID=debian", 'ID="debian"'} & set(lines)) and machine.which("apt-get") is not None


def debian_package(headless: bool) -> str:
    """Return the name of Debian's package of the browser that is wanted."""
    return "chromium-headless-shell" if headless else "chromium"


def read_version(choice: BrowserChoice) -> str | None:
    """Return the version that a browser reports, or None. Starts the browser for some 100 ms; blocks."""
    if choice.version is not None or choice.path is None:
        return choice.version
    if choice.path.endswith(".exe"):  # opens a window there instead
        return None
    try:
        result = subprocess.run(
            [choice.path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(result.stdout.decode(errors="replace"))
    return version[0] if version else None
