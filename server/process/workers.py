"""Worker processes that serve one port. Their parent serves nothing: it starts them, and starts each again that ends.

Each worker has a listening socket of its own, and the system spreads new connections over these sockets. The parent keeps
all of them open, so connections wait while a worker is started again. Two pipes connect a worker with its parent: through
one it reports that it serves, the other one ends when the parent stops its workers, or dies.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio

from ..exit_codes import FAILURE, OK, USAGE
from ..shutdown import SIGNALS
from ..sockets.systemd import notify

FIRST_RESTART_SECONDS: Final = 0.2
"""Seconds between the end of a worker and its next start. Each further end doubles them."""
LONGEST_RESTART_SECONDS: Final = 5.0
STABLE_SECONDS: Final = 10.0
"""Seconds of service after which a worker that ends is started again as after its first end."""

logger = logging.getLogger("statehold.server")


class Worker:
    """This process as a worker: its listening socket, and its ends of the pipes to the parent."""

    def __init__(self, listener: socket.socket, number: int, parent: int, report: int) -> None:
        self.listener = listener
        self.number = number
        """Its place among the workers, from 0; one that replaces another has the same."""
        self.parent_pid = os.getppid()
        self._parent = parent
        self._report = report

    def stop_all(self) -> None:
        """Have the parent end all workers, as a signal to it does. Does nothing after its death."""
        if os.getppid() == self.parent_pid:
            os.kill(self.parent_pid, signal.SIGTERM)

    def report_serving(self) -> None:
        """Tell the parent that this worker serves. Called once."""
        # A parent that has died meanwhile hears nothing, and wait_stopped() returns.
        with suppress(BrokenPipeError):
            os.write(self._report, b"\n")
        os.close(self._report)

    async def wait_stopped(self) -> None:
        """Return when the parent stops its workers, or has died."""
        await anyio.wait_readable(self._parent)


class _Place:
    """A listening socket, and the worker that serves it now."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.pid: int | None = None
        self.report: int | None = None
        """The pipe through which the worker reports that it serves; None once it did."""
        self.served_since = math.inf
        self.start_at = math.inf
        self.ends = 0
        """How often a worker ended here after a short service."""

    def close_report(self) -> None:
        if self.report is not None:
            os.close(self.report)
            self.report = None


class Workers:
    """The workers of this process. `on_serving` is called once, when all of them serve.

    The first one starts alone: it migrates the database, and what keeps it from serving is an error of all.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], on_serving: Callable[[], object]
    ) -> None:
        self._places = [_Place(listener) for listener in listeners]
        self._places[0].start_at = 0.0
        self._on_serving = on_serving
        self._has_served = False
        self._stop_signals = 0
        self._stopping = False
        self._code = OK
        self._parent, self._alive = os.pipe()
        # Taken from the environment, so that only this process reports to systemd.
        self._systemd = {"NOTIFY_SOCKET": os.environ.pop("NOTIFY_SOCKET", "")}

    def run(self) -> Worker | int:
        """Run the workers until a signal comes. Returns in each worker as well.

        In this process it returns the exit code, after the last worker has ended; in a worker, the Worker.
        """
        with self._wake_on_signals() as wakeup:
            while True:
                for place in self._places:
                    if place.pid is None and place.start_at <= time.monotonic():
                        worker = self._start(place)
                        if worker is not None:
                            return worker
                self._wait(wakeup)
                self._reap()
                if self._stop_signals:
                    self._stop()
                if self._stopping and all(place.pid is None for place in self._places):
                    return self._code

    @contextmanager
    def _wake_on_signals(self) -> Generator[int]:
        """Yield a descriptor that can be read after each signal. In a worker, the end of the block restores the handlers."""

        def count(*_: object) -> None:
            self._stop_signals += 1

        def wake_only(*_: object) -> None:
            pass

        wakeup, wake = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wake, False)
        handlers: dict[signal.Signals, Any] = {}
        for number in SIGNALS:
            handlers[number] = signal.signal(number, count)
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, wake_only)
        former = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            yield wakeup
        finally:
            signal.set_wakeup_fd(former)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(wakeup)
            os.close(wake)

    def _start(self, place: _Place) -> Worker | None:
        place.report, report = os.pipe()
        pid = os.fork()
        if pid == 0:
            # An open descriptor would hold the port, or hide the death of the parent, as long as this worker lives.
            os.close(self._alive)
            for other in self._places:
                other.close_report()
                if other is not place:
                    other.listener.close()
            number = self._places.index(place)
            return Worker(place.listener, number, self._parent, report)
        os.close(report)
        place.pid, place.start_at = pid, math.inf
        return None

    def _wait(self, wakeup: int) -> None:
        """Wait for a signal, a report, or the time to start a worker."""
        reports = {place.report: place for place in self._places if place.report is not None}
        start_at = min(place.start_at for place in self._places)
        seconds = None if start_at == math.inf else max(0.0, start_at - time.monotonic())
        readable, _, _ = select.select([wakeup, *reports], [], [], seconds)
        for descriptor in readable:
            if descriptor == wakeup:
                os.read(wakeup, 4096)
            else:
                self._record_report(reports[descriptor])

    def _record_report(self, place: _Place) -> None:
        assert place.report is not None
        is_serving = os.read(place.report, 1) != b""
        place.close_report()
        if not is_serving:
            # It has ended, and is reaped.
            return
        place.served_since = time.monotonic()
        if self._has_served:
            return
        for other in self._places:
            if other.pid is None:
                other.start_at = min(other.start_at, 0.0)
        if all(other.served_since < math.inf for other in self._places):
            self._has_served = True
            self._on_serving()
            notify("READY=1", self._systemd)

    def _reap(self) -> None:
        for place in self._places:
            if place.pid is None:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                place.pid = None
                place.close_report()
                self._record_end(place, pid, os.waitstatus_to_exitcode(status))

    def _record_end(self, place: _Place, pid: int, code: int) -> None:
        if self._stopping:
            return
        served_for, place.served_since = time.monotonic() - place.served_since, math.inf
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        none_serves = all(other.served_since == math.inf for other in self._places)
        if code == USAGE or (none_serves and not self._has_served):
            if code <= 0:
                # Otherwise the worker has said why it ended.
                logger.error("worker %d %s", pid, how)
            self._code = code if code > 0 else FAILURE
            self._stop()
            return
        place.ends = 0 if served_for >= STABLE_SECONDS else place.ends
        wait = min(LONGEST_RESTART_SECONDS, FIRST_RESTART_SECONDS * 2**place.ends)
        place.ends = min(place.ends + 1, 10)
        place.start_at = time.monotonic() + wait
        logger.warning("worker %d %s; another one starts in %g s", pid, how, wait)

    def _stop(self) -> None:
        """Have the workers end. Called again, have them wait for no connection."""
        if not self._stopping:
            self._stopping, self._stop_signals = True, min(self._stop_signals, 1)
            notify("STOPPING=1", self._systemd)
            os.close(self._alive)
            for place in self._places:
                place.start_at = math.inf
                place.listener.close()
        elif self._stop_signals > 1:
            self._stop_signals = 1
            for place in self._places:
                if place.pid is not None:
                    os.kill(place.pid, signal.SIGTERM)
