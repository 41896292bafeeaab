"""A browser in a host process that the keeper holds, so that its pages outlive this process.

The host starts the browser; a driver of this process attaches to it, and after our end one of the next process. Contexts
and pages stay as they are meanwhile. Requests that we intercept and scripts for new documents are those of a driver, and
have to be set up again.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from ....sessions.errors import ConnectionLost
from ...processes.child_process import ChildProcess, KeeperHandle, ProcessLimits
from ...processes.keeper import KeptIdentity
from ...processes.keeper_command import KeeperRefusal, KeeperUnreachable
from ...processes.ledger import Ledger
from .. import errors
from ..devtools.sdk import driver_command
from .driver import HOOKS, LEAN, program_environment
from .scratch import ScratchFolder

logger = logging.getLogger("statehold.browser")

PROGRAM: Final = Path(__file__).with_name("host.cjs")
LIMITS: Final = ProcessLimits(eof_grace=5.0)
_GONE: Final = "The browser did not outlive its server."


@dataclass(frozen=True, slots=True)
class HostAddress:
    """The address of a host for a later process. Secret: the endpoint gives every session of the browser."""

    name: str
    """The name that the host has at the keeper."""
    endpoint: str
    folder: str
    """The folder for temporary files of the browser."""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


class BrowserHost:
    """One host process. It lives until aclose(), or until its browser ends.

    When this process ends without aclose(), the keeper holds it for `keeper.linger_seconds`.
    """

    def __init__(self, child: ChildProcess, address: HostAddress, scratch: ScratchFolder) -> None:
        self._child = child
        self._scratch = scratch
        self.address = address

    def __repr__(self) -> str:
        return f"<BrowserHost pid={self._child.pid}>"

    @property
    def folder(self) -> Path:
        """The folder for temporary files of the browser."""
        return self._scratch.path

    @property
    def outlives_process(self) -> bool:
        return self._child.kept is not None

    @classmethod
    async def start(
        cls,
        ledger: Ledger,
        folder: Path,
        options: Mapping[str, Any],
        *,
        service: str,
        seconds: float,
    ) -> BrowserHost:
        """Start a host with a browser within `seconds`.

        `options` are those of Playwright's `launch()`; `service` names the host in lists.

        Raises:
            Error, OSError: The browser does not start.
        """
        assert ledger.keeper is not None
        node, program = driver_command()
        scratch = await anyio.to_thread.run_sync(ScratchFolder.make, folder)
        scratch.share()
        payload = {"package": os.path.dirname(program), "options": _in_javascript(options)}
        command = [node, *LEAN, *HOOKS, str(PROGRAM), json.dumps(payload)]
        if (flock := shutil.which("flock")) is not None:
            # Holds the lock on the folder as long as the host runs, so that nobody removes it.
            command = [flock, "--shared", "--no-fork", str(scratch.path), *command]
        name = f"browser-{secrets.token_hex(8)}"
        child: ChildProcess | None = None
        try:
            child = await ChildProcess.start(
                command,
                service=service,
                env=program_environment(scratch.path),
                cwd=str(scratch.path),
                limits=LIMITS,
                ledger=ledger,
                kept=KeeperHandle(ledger.keeper, _identity(name, service)),
            )
            endpoint = await _bound_endpoint(child, seconds)
        except BaseException:
            with anyio.CancelScope(shield=True):
                if child is not None:
                    child.kill_nowait()
                    await child.aclose()
                await anyio.to_thread.run_sync(scratch.remove)
            raise
        return cls(child, HostAddress(name, endpoint, str(scratch.path)), scratch)

    @classmethod
    async def adopt(cls, ledger: Ledger, address: HostAddress, *, service: str) -> BrowserHost:
        """Adopt the host of a process that ended.

        Raises:
            ConnectionLost: It is gone.
        """
        if ledger.keeper is None:
            raise ConnectionLost(_GONE)
        handle = KeeperHandle(ledger.keeper, _identity(address.name, service))
        try:
            child = await ChildProcess.adopt(handle, service=service, limits=LIMITS, ledger=ledger)
        except (KeeperRefusal, KeeperUnreachable) as error:
            logger.debug("the keeper did not give up a browser: %s", error)
            raise ConnectionLost(_GONE) from error
        return cls(child, address, ScratchFolder.reopen(Path(address.folder)))

    async def hold(self, name: str, descriptor: int) -> bool:
        """Have the keeper hold a descriptor for the process that adopts this host. Return whether it does.

        A refusal is logged.
        """
        if self._child.kept is None:
            return False
        try:
            await self._child.kept.hold(name, descriptor)
        except (KeeperRefusal, KeeperUnreachable) as error:
            logger.warning("the keeper does not hold a port of a browser: %s", error)
            return False
        return True

    async def fetch(self, name: str) -> int:
        """Return a descriptor that the last process had the keeper hold. The caller closes it.

        Raises:
            ConnectionLost: There is none.
        """
        if self._child.kept is not None:
            with suppress(KeeperRefusal, KeeperUnreachable):
                return await self._child.kept.fetch(name)
        raise ConnectionLost(_GONE)

    async def drop(self, name: str) -> None:
        """Have the keeper close a descriptor."""
        if self._child.kept is not None:
            with suppress(KeeperRefusal, KeeperUnreachable):
                await self._child.kept.drop(name)

    def kill(self) -> None:
        """Kill it, and the browser with it, for a browser that no longer answers."""
        self._child.kill_nowait()

    async def aclose(self) -> None:
        """End the browser and the host within a bound. May be called twice."""
        await self._child.aclose()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._scratch.remove)


def _identity(name: str, service: str) -> KeptIdentity:
    # The host belongs to no single session. Each adoption comes later than the one before it.
    return KeptIdentity(name, service, 1, time.time_ns())


async def _bound_endpoint(child: ChildProcess, seconds: float) -> str:
    try:
        with anyio.fail_after(seconds):
            message = await child.read_stream.receive()
    except TimeoutError:
        raise errors.Error(f"Timeout {seconds * 1000:g}ms exceeded.") from None
    except anyio.EndOfStream:
        await child.wait_for_exit(1.0)
        raise errors.Error(child.last_output() or f"The host {child.describe_end()}.") from None
    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, JSONRPCNotification)
    params = message.message.params or {}
    if message.message.method == "failed":
        raise errors.Error(params["message"])
    return params["endpoint"]


def _in_javascript(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of Playwright for Python with the names that they have in JavaScript."""
    return {_camel_case(name): value for name, value in options.items()}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
