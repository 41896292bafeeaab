"""A thread that runs jobs, one after the other."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

_Job: TypeAlias = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class Worker:
    """Starts its thread with the first job and lives until end().

    A job costs a third of what it costs in an executor of one thread; at a batch every few calls, that is a tenth of the
    whole journal. The thread does not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Queue work, and return the future of its result.

        A job whose future is cancelled before it starts is left out; a running job goes on, and its result is dropped.
        """
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._jobs,), name=self._name, daemon=True
            )
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((work, future, loop))
        return future

    def end(self) -> None:
        """End the thread after the queued jobs. May be called twice; no job may be queued after it."""
        self._jobs.put(None)


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        work, future, loop = job
        if not future.cancelled():
            value, error = None, None
            try:
                value = work()
            except BaseException as raised:
                error = raised
            # Only a closed loop refuses the call, and then there is no waiter.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, value, error)
            del value, error
        # Do not keep the finished job alive while waiting for the next one.
        del job, work, future, loop


def _settle(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


__all__ = ["Worker"]
