"""A child process that speaks JSON-RPC on its pipes. Closing it also ends every process that it started."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from . import procfs
from .call_log import CallLog, LoggedPipe
from .framing import StdinWriter, StdoutReader
from .keeper import KeeperClient, KeptIdentity, KeptProcess
from .keeper_command import KeeperUnreachable
from .launch import inherited_environment
from .ledger import Ledger
from .piped_process import OwnProcess, Process
from .sandbox import ProcessSandbox
from .stderr import OutputTail

logger = logging.getLogger("statehold.upstream")

LAST_OUTPUT_SECONDS: Final = 0.5
"""Seconds to read the remaining output after a child exited or closed its stdin."""

ORDERLY_SECONDS: Final = 0.3
"""Seconds for the child's own subprocesses to end after it; those that run longer are logged as left behind."""


SIGNAL_BASE: Final = 128
"""The exit code of a launcher is this plus the number of the signal that killed the program below it."""
_FATAL_SIGNALS: Final = frozenset(
    {
        *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGBUS),
        *(signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGTERM),
    }
)


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The limits of one child: bytes of its output that we hold, and seconds for each step of ending it."""

    line_bytes: int = 64 * 2**20
    """The longest line on stdout; a longer one ends the connection."""
    stderr_bytes: int = 64 * 1024
    """The bytes of stderr that are kept."""
    eof_grace: float = 1.0
    """Seconds to wait for its exit after closing its stdin."""
    term_grace: float = 2.0
    """Seconds to wait for the end of its process group after SIGTERM."""
    kill_grace: float = 1.0
    """Seconds to wait for the end of its process group after SIGKILL."""


@dataclass(frozen=True, slots=True)
class KeeperHandle:
    """The handle of a child at the keeper: the connection to the keeper, and the name that the child has there."""

    client: KeeperClient
    identity: KeptIdentity

    async def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        mark: str,
        ruleset: int | None,
    ) -> KeptProcess | None:
        """Start a program at the keeper; return None when it does not keep it. Raises as KeeperClient.spawn does."""
        try:
            return await self.client.spawn(
                self.identity, command, env=env, cwd=cwd, mark=mark, ruleset=ruleset
            )
        except KeeperUnreachable as error:
            logger.warning("%s is not kept beyond our end: %s", self.identity.service, error)
            return None


class ChildProcess:
    """A running child in its own process group. It lives until aclose(), which ends the whole group.

    `read_stream` and `write_stream` are the SDK's streams over its stdout and stdin. `fault` describes a violation of the
    protocol by the child, such as an endless line.
    """

    def __init__(
        self,
        process: Process,
        *,
        service: str,
        mark: str,
        limits: ProcessLimits,
        ledger: Ledger | None,
        on_stderr: Callable[[str], None] | None = None,
        hide: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._process = process
        self._service = service
        self._mark = mark
        self._limits = limits
        self._ledger = ledger
        kept = self.kept
        self.call_log = None if kept is None else CallLog(kept.call_log)
        """The memory of its calls that outlives this process; None for a child of our own."""
        self._stderr = OutputTail(
            limits.stderr_bytes,
            on_stderr,
            beginning="" if kept is None else kept.earlier_stderr,
            hide=hide,
        )
        self._closing: anyio.Event | None = None
        self._is_left = False
        self._group_members: list[int] = []
        self.pid = process.pid
        self.exited = anyio.Event()
        self._stdin_closed = False
        self.fault: str | None = None
        awaited = set[int | str](() if self.call_log is None else self.call_log.earlier.calls)
        self.read_stream = StdoutReader(
            limits.line_bytes,
            self._record_fault,
            beginning=b"" if self.call_log is None else self.call_log.received()[1],
            awaited=awaited,
            hide=hide,
        )
        self.hide = hide
        self.write_stream = StdinWriter(
            self._record_stdin_closed, log=self.call_log, awaited=awaited
        )

    def __repr__(self) -> str:
        return f"<ChildProcess pid={self.pid} returncode={self.returncode}>"

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        service: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limits: ProcessLimits | None = None,
        ledger: Ledger | None = None,
        kept: KeeperHandle | None = None,
        on_stderr: Callable[[str], None] | None = None,
        hide: Callable[[bytes], bytes] = bytes,
        sandbox: ProcessSandbox | None = None,
    ) -> ChildProcess:
        """Start a program. A cancelled start leaves nothing behind. `on_stderr` gets each line of stderr, unescaped.

        `hide` takes secrets of its environment out of its output. In a `sandbox`, all its processes end when it does.

        With `kept`, it is a child of the keeper if that can be reached.

        Raises:
            OSError, ValueError: The program cannot be started.
        """
        variables = {**inherited_environment(), **(env or {})}
        process: Process | None = None
        mark, ruleset = "", None
        try:
            if sandbox is not None:
                command, ruleset = await anyio.to_thread.run_sync(
                    sandbox.prepare, command, variables, cwd or os.getcwd()
                )
            if kept is not None and ledger is not None:
                mark = ledger.mark(kept=True)
                process = await kept.start(
                    command,
                    env=variables | {procfs.MARK: mark},
                    cwd=cwd,
                    mark=mark,
                    ruleset=ruleset,
                )
            if process is None:
                mark = ledger.mark() if ledger is not None else f"none:{os.getpid()}-{id(command)}"
                process = OwnProcess(
                    command, env=variables | {procfs.MARK: mark}, cwd=cwd, ruleset=ruleset
                )
        finally:
            if ruleset is not None:
                os.close(ruleset)
        return await cls._open(
            process,
            mark,
            service=service,
            limits=limits,
            ledger=ledger,
            on_stderr=on_stderr,
            hide=hide,
        )

    @classmethod
    async def adopt(
        cls,
        kept: KeeperHandle,
        *,
        service: str,
        limits: ProcessLimits | None = None,
        ledger: Ledger | None = None,
        on_stderr: Callable[[str], None] | None = None,
        hide: Callable[[bytes], bytes] = bytes,
    ) -> ChildProcess:
        """Adopt a child that the keeper holds.

        Raises:
            KeeperRefusal, KeeperUnreachable: There is none, or another node has the session by now.
        """
        process = await kept.client.adopt(kept.identity)
        return await cls._open(
            process,
            process.mark,
            service=service,
            limits=limits,
            ledger=ledger,
            on_stderr=on_stderr,
            hide=hide,
        )

    @classmethod
    async def _open(
        cls,
        process: Process,
        mark: str,
        *,
        service: str,
        limits: ProcessLimits | None,
        ledger: Ledger | None,
        on_stderr: Callable[[str], None] | None,
        hide: Callable[[bytes], bytes],
    ) -> ChildProcess:
        limits = limits or ProcessLimits()
        child = cls(
            process,
            service=service,
            mark=mark,
            limits=limits,
            ledger=ledger,
            on_stderr=on_stderr,
            hide=hide,
        )
        if ledger is not None:
            keeper = process.keeper_pid if isinstance(process, KeptProcess) else None
            ledger.add(process.pid, mark, service, parent=keeper)
        try:
            await child._connect()
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            child.kill_nowait()
            await child.aclose()
            raise
        return child

    async def _connect(self) -> None:
        self._process.watch(self._record_exit)
        loop = asyncio.get_running_loop()
        stdin, stdout, stderr = self._process.take_pipes()
        # Shielded because uvloop closes a pipe whose connecting is cancelled; it is over within an iteration of the loop.
        with anyio.CancelScope(shield=True):
            await loop.connect_read_pipe(lambda: self._stderr, stderr)
            if self.call_log is None:
                await loop.connect_read_pipe(lambda: self.read_stream, stdout)
            else:
                LoggedPipe(stdout, self.call_log, self.read_stream)
            await loop.connect_write_pipe(lambda: self.write_stream, stdin)
            self.write_stream.end_open_line()

    def _record_exit(self) -> None:
        self.exited.set()
        self._close_stdout_soon()

    def _record_stdin_closed(self) -> None:
        self._stdin_closed = True
        self._close_stdout_soon()

    def _close_stdout_soon(self) -> None:
        # A grandchild may keep stdout open for ever; the output of the child itself arrives within this time.
        if self._closing is None:
            asyncio.get_running_loop().call_later(LAST_OUTPUT_SECONDS, self.read_stream.abort)

    def _record_fault(self, fault: str) -> None:
        self.fault = fault

    @property
    def kept(self) -> KeptProcess | None:
        """The child as the keeper knows it; None for a child of our own."""
        return self._process if isinstance(self._process, KeptProcess) else None

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the number of the signal that killed it, or None while it runs."""
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The last part of its stderr."""
        return self._stderr.text

    def describe_end(self) -> str:
        """Return in a few words how it ended."""
        if self.fault is not None:
            return self.fault
        if self.returncode is None:
            return f"closed its {'stdin' if self._stdin_closed else 'stdout'} but still runs"
        if self.returncode < 0:
            return f"was killed by {_signal_name(-self.returncode)}"
        text = f"exited with code {self.returncode}"
        if self.returncode - SIGNAL_BASE in _FATAL_SIGNALS:
            # A shell, npx and uvx report the signal that ended the program below them so.
            text += f": its program was killed by {_signal_name(self.returncode - SIGNAL_BASE)}"
        return text

    def last_output(self) -> str:
        """Return the last part of its stderr; if that is empty, the last lines of stdout that were not JSON-RPC."""
        return self.stderr.strip() or "\n".join(self.read_stream.noise_tail)

    async def wait_for_exit(self, seconds: float) -> None:
        """Wait up to `seconds` for its exit code and the end of its stderr, which arrive after the end of stdout."""
        with anyio.move_on_after(seconds):
            await self.exited.wait()
            await self._stderr.ended.wait()

    def leave(self) -> None:
        """Have aclose() leave a child of the keeper to the next process; nothing is written to it from now on."""
        if self.kept is not None:
            self._is_left = True
            self.write_stream.abort()

    def kill_nowait(self) -> None:
        """Kill its process group now. aclose() must still be called."""
        if self._is_running():
            procfs.signal_group(self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """Close its stdin, then send SIGTERM and SIGKILL to its process group, waiting after each step as its limits say.

        After leave() it does neither. On Linux, processes that left the group are found by their mark and killed. May be
        called twice; the second call waits for the first. Cancellation does not interrupt it.
        """
        if self._closing is not None:
            with anyio.CancelScope(shield=True):
                await self._closing.wait()
            return
        self._closing = anyio.Event()
        try:
            with anyio.CancelScope(shield=True):
                await self._stop()
        except BaseException:
            # Reached only when the task is cancelled without anyio.
            self.kill_nowait()
            raise
        finally:
            self._finish()
            self._closing.set()

    async def _stop(self) -> None:
        if self._is_left and self.kept is not None:
            await self.kept.leave()
            return
        had_children = self.returncode is None and procfs.has_children(self.pid)
        marks, keeps_daemons = [self._mark], False
        self.read_stream.discard()
        if not await self._process.release():
            return
        if self._ledger is not None:
            marks, keeps_daemons = self._ledger.begin_end(self.pid)
        self.write_stream.close()
        limits = self._limits
        if self._is_running():
            # A stopped process ignores SIGTERM and would use up every grace period.
            procfs.signal_group(self.pid, signal.SIGCONT)
        if self.fault is None:
            await self._wait(self.exited.is_set, limits.eof_grace)
        if had_children and self.returncode is not None:
            await self._log_remaining()
        left_nothing = self.returncode == 0 and not had_children
        if self._is_running():
            left_nothing = False
            procfs.signal_group(self.pid, signal.SIGTERM)
            await self._wait(self._has_ended, limits.term_grace)
        if self._is_running():
            procfs.signal_group(self.pid, signal.SIGKILL)
            await self._wait(self._has_ended, limits.kill_grace)
        if procfs.LINUX and (not left_nothing or len(marks) > 1):
            select = self._select_private if keeps_daemons else list
            await anyio.to_thread.run_sync(procfs.kill_marked, marks, select)

    def _select_private(self, pids: list[int]) -> set[int]:
        """Return the processes that end with this child: all but daemons that other children of its service may use."""
        private = None if self._ledger is None else self._ledger.private_folder
        return set(pids) - procfs.find_daemons(pids, self.pid, private)

    async def _log_remaining(self) -> None:
        """Log the processes that the child left running when it exited by itself. _stop() kills them afterwards."""
        remaining: dict[int, str] = {}
        with anyio.move_on_after(ORDERLY_SECONDS):
            while remaining := await self._find_remaining():  # noqa: ASYNC110 - nothing tells
                await anyio.sleep(0.03)
        if not remaining:
            return
        if self._ledger is not None:
            self._ledger.record_remaining(self._service, remaining)
        names = ", ".join(f"{name} ({pid})" for pid, name in sorted(remaining.items()))
        logger.warning("%s left processes behind when it ended: %s", self._service, names)

    async def _find_remaining(self) -> dict[int, str]:
        """Return the processes of an ended child that still run: program names by pid."""
        marked_pids = await anyio.to_thread.run_sync(procfs.find_marked, self._mark.__eq__)
        group_pids = self._group_members if self._is_running() else ()
        return {
            pid: procfs.program_name(pid)
            for pid in {*marked_pids, *group_pids}
            if procfs.start_time(pid)
        }

    def _is_running(self) -> bool:
        # The group exists until its leader is reaped. group_members() would reap it and lose its exit code.
        if self.returncode is None:
            return True
        if not (procfs.LINUX and any(procfs.start_time(member) for member in self._group_members)):
            self._group_members = procfs.group_members(self.pid)
        return bool(self._group_members)

    def _has_ended(self) -> bool:
        return not self._is_running()

    async def _wait(self, is_over: Callable[[], bool], seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.exited.wait()
            pause = 0.002
            while not is_over():
                await anyio.sleep(pause)
                pause = min(pause * 2, 0.05)

    def _finish(self) -> None:
        # The transport of each pipe closes its descriptor.
        for stream in (self.read_stream, self.write_stream, self._stderr):
            stream.abort()
        if self.call_log is not None:
            self.call_log.close()
        if isinstance(self._process, OwnProcess):
            self._process.reap_later()
        if self.returncode is None and not self._is_left:
            logger.warning(
                "child %d does not end; the next start of Statehold will try again", self.pid
            )
        elif self._ledger is not None:
            self._ledger.remove(self.pid)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
