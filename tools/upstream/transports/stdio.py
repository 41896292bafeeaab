"""A child process as a transport."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from ....sessions.errors import ConnectionLost, ServiceUnavailable
from ...processes.call_log import CallLog
from ...processes.child_process import ChildProcess, KeeperHandle, ProcessLimits
from ...processes.keeper_command import KeeperRefusal, KeeperUnreachable, NoKeeper
from ...processes.ledger import Ledger
from ...processes.sandbox import ProcessSandbox, SandboxError
from .base import EarlierTraffic, TransportResumption, UpstreamTransport
from .http_errors import BrokenExchange, HttpRefusal

EXIT_CODE_SECONDS: Final = 0.3
"""Seconds to wait for the exit code after the end of stdout, before the end is reported without it."""


class KeptCalls(TransportResumption):
    """The calls of a child that the keeper holds, in its call log. No other process has the child while this one has it."""

    keeps_calls = True

    def __init__(self, child: ChildProcess, log: CallLog) -> None:
        self._child = child
        self._log = log

    def leave(self) -> None:
        self._child.leave()

    async def keep(self, seconds: float) -> None:
        if self._child.kept is not None:
            with suppress(KeeperRefusal, KeeperUnreachable):
                await self._child.kept.keep(seconds)

    def record_call(self, number: int, operation_id: str) -> None:
        self._child.write_stream.operations[number] = operation_id

    def record_asker(self, question: int | str, number: int) -> None:
        self._log.record_asker(question, number)

    def earlier_traffic(self) -> EarlierTraffic:
        sent, (lines, _) = self._log.earlier, self._log.received()
        lines = [self._child.hide(line) for line in lines]
        return EarlierTraffic(sent.calls, sent.has_all_calls, sent.answered, sent.askers, lines)


class ChildProcessTransport:
    """The streams of one child process."""

    http = False

    def __init__(self, child: ChildProcess) -> None:
        self.child = child
        self.pid: int | None = child.pid
        self.resumption = None if child.call_log is None else KeptCalls(child, child.call_log)
        self.read_stream = child.read_stream
        self.write_stream = child.write_stream

    def is_unsent(self, number: int) -> bool:
        return number in self.write_stream.unsent

    def take_failure(self, number: int) -> HttpRefusal | BrokenExchange | None:
        return None

    @property
    def has_session(self) -> bool:
        return False

    def last_output(self) -> str:
        return self.child.last_output()

    def noise(self) -> str:
        return self.child.read_stream.noise()

    @property
    def noise_at(self) -> float:
        return self.child.read_stream.noise_at

    async def describe_end(self) -> tuple[str, str]:
        await self.child.wait_for_exit(EXIT_CODE_SECONDS)
        return f"the process {self.child.describe_end()}", self.child.last_output()


@asynccontextmanager
async def open_stdio(
    command: str,
    args: Sequence[str],
    *,
    service: str,
    env: Mapping[str, str],
    cwd: str | None,
    limits: ProcessLimits | None = None,
    ledger: Ledger | None = None,
    kept: KeeperHandle | None = None,
    on_stderr: Callable[[str], None] | None = None,
    hide: Callable[[bytes], bytes] = bytes,
    sandbox: ProcessSandbox | None = None,
) -> AsyncGenerator[UpstreamTransport]:
    """Start a child process. Leaving the block ends it and every process that it started.

    `hide` takes secrets of `env` out of its output. With `kept`, it survives an end of this process that leaves the block
    by no way.

    Raises:
        ServiceUnavailable: The program cannot be started.
    """
    try:
        child = await ChildProcess.start(
            [command, *args],
            service=service,
            env=env,
            cwd=cwd,
            limits=limits,
            ledger=ledger,
            kept=kept,
            on_stderr=on_stderr,
            hide=hide,
            sandbox=sandbox,
        )
    except (OSError, ValueError) as error:
        raise ServiceUnavailable(
            f"{service} could not be started: {_problem(command, cwd, error)}."
        ) from error
    try:
        yield ChildProcessTransport(child)
    finally:
        await child.aclose()


@asynccontextmanager
async def resume_stdio(
    kept: KeeperHandle,
    *,
    service: str,
    limits: ProcessLimits | None = None,
    ledger: Ledger | None = None,
    on_stderr: Callable[[str], None] | None = None,
    hide: Callable[[bytes], bytes] = bytes,
) -> AsyncGenerator[UpstreamTransport]:
    """Adopt a child process that the keeper holds. Leaving the block ends it, as with open_stdio().

    Raises:
        ConnectionLost: The keeper does not hold it, or another node has it.
        ServiceUnavailable: The keeper does not answer, so that it may still hold it.
    """
    try:
        child = await ChildProcess.adopt(
            kept, service=service, limits=limits, ledger=ledger, on_stderr=on_stderr, hide=hide
        )
    except (KeeperRefusal, NoKeeper) as error:
        raise ConnectionLost(
            f"{service} ended, and no keeper holds its process ({error})."
        ) from error
    except KeeperUnreachable as error:
        raise ServiceUnavailable(
            f"{service} could not be resumed: the keeper of its process cannot be reached ({error})."
        ) from error
    try:
        yield ChildProcessTransport(child)
    finally:
        await child.aclose()


def _problem(command: str, cwd: str | None, error: OSError | ValueError) -> str:
    name = os.path.basename(command)
    if isinstance(error, SandboxError):
        return str(error)
    if not isinstance(error, OSError):
        return f"the command, its arguments or its environment are not valid ({error})"
    if cwd is not None and error.filename == cwd:
        return f"its working folder cannot be used ({error.strerror})"
    if error.errno == errno.ENOENT:
        return f"there is no program {name!r} on this machine; install it or correct `command`"
    return f"the program {name!r} cannot be run ({error.strerror})"
