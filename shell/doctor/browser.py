"""The doctor's checks of the built-in browser: its executable and its sandbox. They start no browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio

from ...server.config.model import Config
from ...server.printing import is_terminal
from ...tools.browser.config import BrowserConfig
from ...tools.browser.process.choice import INSTALL_COMMAND, NoBrowser, find_browser, read_version
from ...tools.browser.process.executables import Machine, ffmpeg_path, is_program
from ...tools.browser.process.install import (
    can_install,
    command_by_hand,
    install_browser,
    install_methods,
    may_install,
)
from ...tools.browser.process.sandbox import is_turned_off, sandbox
from ..output import confirm
from ..progress import ProgressBar
from .system import Finding


def check_browser(config: Config) -> Iterator[Finding]:
    """Look for the browser of each browser service, or for any browser without such a service."""
    machine = Machine()
    services = config.browsers()
    for name, service in services.items():
        yield from _check_service(f"service {name}", service, machine)
    if not services:
        yield _check_unused(machine)


def install_missing(
    config: Config, *, consent: bool, is_json: bool = False, machine: Machine | None = None
) -> None:
    """Install the missing browsers of the configured services. Without `consent`, ask the user before each.

    If no browser service is configured, `consent` installs the browser for the default settings.
    """
    machine = machine or Machine()
    configs = list(config.browsers().values())
    if consent and not configs:
        configs = [BrowserConfig()]
    for service in configs:
        if service.remote or not can_install(service, machine):
            continue
        try:
            find_browser(service, machine)
        except NoBrowser:
            if consent or _ask_consent(service, machine):
                # The installer reports a failure itself, and the check that follows finds it.
                bar = ProgressBar("installing a browser", is_json=is_json)
                with bar, suppress(NoBrowser):
                    install = partial(install_browser, bar.say, on_output=bar.note)
                    anyio.run(partial(install, config=service, machine=machine))


def _ask_consent(config: BrowserConfig, machine: Machine) -> bool:
    """Ask the user at the terminal; without a terminal the answer is no."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return False
    method = install_methods(config, machine)[0].name
    return confirm(f"statehold: no browser was found. Install {method}?")


def _check_service(title: str, config: BrowserConfig, machine: Machine) -> Iterator[Finding]:
    if config.remote:
        yield Finding(title, "ok", f"a browser at {config.place}")
        return
    try:
        executable = find_browser(config, machine)
    except NoBrowser as error:
        problem, _, remedy = error.message.rstrip(".").partition(": ")
        if may_install(config, machine):
            detail = f"{problem}; it is installed when a session needs it"
            yield Finding(title, "warn", detail, f"run: {command_by_hand(config, machine)}")
        elif can_install(config, machine):
            by_hand = command_by_hand(config, machine)
            yield Finding(title, "fail", problem, f"run: {INSTALL_COMMAND}, or: {by_hand}")
        else:
            yield Finding(title, "fail", problem, remedy)
        return
    version = read_version(executable)
    where = executable.path or f"the {executable.channel} that is installed"
    if version is None and executable.path is not None:
        yield Finding(title, "fail", f"{where} does not start", "install it again")
        return
    kind = "headless shell" if executable.shell else executable.kind.capitalize()
    yield Finding(title, "ok", f"{kind} {version or ''} at {where}".replace("  ", " "))
    path = None if executable.path is None else Path(executable.path)
    yield check_sandbox(f"{title} sandbox", config, machine, path)
    if "devtools" in config.caps:
        yield _check_videos(f"{title} videos", machine)


def check_sandbox(
    title: str, config: BrowserConfig, machine: Machine, program: Path | None = None
) -> Finding:
    """Look whether a browser gets a sandbox. A `program` may come with a helper for it."""
    if is_turned_off(config.args):
        return Finding(title, "warn", "off: `args` says so", "take --no-sandbox out of `args`")
    status = sandbox(machine, program)
    if not status.on:
        detail = f"off: {status.reason}"
        return Finding(title, "warn", detail, "run statehold as another user, not as root")
    if status.remedy:
        return Finding(title, "warn", f"on, {status.reason}", status.remedy)
    return Finding(title, "ok", f"on, {status.reason}")


def _check_videos(title: str, machine: Machine) -> Finding:
    if is_program(ffmpeg_path(machine)):
        return Finding(title, "ok", f"made by {ffmpeg_path(machine)}")
    return Finding(title, "warn", "need Playwright's ffmpeg", "run: playwright install ffmpeg")


def _check_unused(machine: Machine) -> Finding:
    try:
        executable = find_browser(BrowserConfig(), machine)
    except NoBrowser:
        return Finding("browser", "ok", "not found, and no service needs it")
    return Finding("browser", "ok", f"{executable.path}, and no service uses it")
