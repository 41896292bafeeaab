"""The installation of a missing browser: from the system's packages, or else from Playwright."""

from __future__ import annotations

import fcntl
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from ...processes import procfs
from ..config import BrowserConfig
from .choice import (
    OWN_CHANNELS,
    BrowserChoice,
    NoBrowser,
    advice,
    debian_package,
    find_browser,
    is_debian,
)
from .executables import Machine

logger = logging.getLogger("statehold.browser")

Say = Callable[[str], None]

INSTALL_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.2
_KEPT_BYTES: Final = 4000


def say_on_stderr(line: str) -> None:
    """Write a line to stderr; stdout may carry the protocol."""
    sys.stderr.write(f"statehold: {line}\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class InstallMethod:
    """One method to install a browser: commands that run one after the other."""

    name: str
    commands: tuple[tuple[str, ...], ...]


def install_methods(config: BrowserConfig, machine: Machine) -> list[InstallMethod]:
    """Return the installation methods to try, best first."""
    methods: list[InstallMethod] = []
    if machine.root and is_debian(machine) and config.channel is None:
        package = debian_package(config.headless)
        install = ("apt-get", "install", "-q", "-y", "--no-install-recommends", package)
        methods.append(
            InstallMethod(f"{package} with apt-get", (("apt-get", "update", "-q"), install))
        )
    shell = OWN_CHANNELS.get(config.channel or "", config.headless)
    # Only root may install the libraries that the browser needs, and only where Playwright knows their packages.
    libraries = ["--with-deps"] if machine.root and machine.which("apt-get") else []
    variant = "--only-shell" if shell else "--no-shell"
    playwright = (sys.executable, "-m", "playwright", "install", *libraries, variant, "chromium")
    name = "Playwright's headless shell" if shell else "Playwright's Chromium"
    methods.append(InstallMethod(f"{name} with playwright install", (playwright,)))
    return methods


async def install_browser(
    say: Say = say_on_stderr,
    *,
    config: BrowserConfig | None = None,
    machine: Machine | None = None,
    timeout: float = INSTALL_SECONDS,
    on_output: Say | None = None,
) -> BrowserChoice:
    """Install a browser and return it. If another process has just installed one, return that one.

    One process of a user installs at a time. Cancelling kills the processes that were started. `on_output` gets the lines
    of the programs that install.

    Raises:
        NoBrowser: No method worked within `timeout` seconds; the message names the command to run by hand.
    """
    config = config or BrowserConfig()
    machine = machine or Machine()
    with anyio.move_on_after(timeout):
        async with _install_lock(machine):
            try:
                return find_browser(config, machine)
            except NoBrowser:
                pass
            for method in install_methods(config, machine):
                say(f"no browser was found; installing {method.name}, which takes a minute ...")
                began = time.monotonic()
                failure = await _run_method(method, machine, on_output)
                if failure is None:
                    try:
                        browser = find_browser(config, machine)
                    except NoBrowser:
                        failure = "the browser is not where it should be after that"
                    else:
                        say(f"installed {method.name} in {time.monotonic() - began:.0f} s")
                        return browser
                logger.error("installing %s failed: %s", method.name, failure)
                say(f"installing {method.name} failed: {failure}")
    command = _advice(config, machine)
    raise NoBrowser(f"No browser was found, and installing one failed: run `{command}`.")


def may_install(config: BrowserConfig, machine: Machine) -> bool:
    """Return whether a missing browser is installed without asking: the configuration consents, and it can be installed."""
    return config.install and can_install(config, machine)


def can_install(config: BrowserConfig, machine: Machine) -> bool:
    """Return whether a missing browser can be installed.

    A browser at a configured path, or of a channel that is not Playwright's own, cannot; nor is one installed that could not
    show the configured window.
    """
    if config.executable is not None:
        return False
    if config.channel is not None and config.channel not in OWN_CHANNELS:
        return False
    shell = OWN_CHANNELS.get(config.channel or "", False)
    return config.headless or (machine.display and not shell)


def command_by_hand(config: BrowserConfig, machine: Machine) -> str:
    """Return the command that installs a browser on this machine by hand."""
    program, *rest = shlex.split(_advice(config, machine))
    return shlex.join([sys.executable if program == "python" else program, *rest])


def _advice(config: BrowserConfig, machine: Machine) -> str:
    own = config.channel is not None
    shell = OWN_CHANNELS.get(config.channel or "", config.headless)
    return advice(machine, shell, own=own)


async def _run_method(method: InstallMethod, machine: Machine, on_output: Say | None) -> str | None:
    """Run the commands of a method. Return the failure, or None."""
    for command in method.commands:
        failure = await _run(command, machine, on_output)
        if failure is not None:
            return f"{shlex.join((os.path.basename(command[0]), *command[1:]))}: {failure}"
    return None


async def _run(command: Sequence[str], machine: Machine, on_output: Say | None) -> str | None:
    program = machine.which(command[0])
    if program is None:
        return "there is no such program"
    environment = {**machine.env, "DEBIAN_FRONTEND": "noninteractive"}
    process = await anyio.open_process(
        [str(program), *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    output = bytearray()
    async with process:
        assert process.stdout is not None
        try:
            async for part in process.stdout:
                output += part
                del output[:-_KEPT_BYTES]
                if on_output is not None and (lines := _lines(output)):
                    on_output(lines[-1])
            status = await process.wait()
        finally:
            # Kill the whole process group: a package manager that keeps running would hold its lock.
            if process.returncode is None:
                procfs.signal_group(process.pid, signal.SIGKILL)
    if status == 0:
        return None
    lines = _lines(output)
    logger.error("%s", "\n".join(lines))
    return lines[-1][:200] if lines else f"exit code {status}"


def _lines(output: bytes | bytearray) -> list[str]:
    return [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]


@asynccontextmanager
async def _install_lock(machine: Machine) -> AsyncGenerator[None]:
    """Wait until no other process of this user installs a browser."""
    name = f"statehold-install-{os.geteuid()}.lock"
    folder = machine.env.get("TMPDIR") or tempfile.gettempdir()
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(os.path.join(folder, name), flags, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(handle)
