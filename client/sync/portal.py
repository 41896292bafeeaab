"""The background thread in which the blocking client's event loop runs: one for all clients, while any of them is open."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import importlib.util
import inspect
import math
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class Closing(Protocol):
    """A user of the thread that can be closed."""

    def close(self) -> None: ...


_options: Final = {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
_open: Final[list[Closing]] = []
_leases: Final[WeakSet[Portal]] = WeakSet()
LEAVE_SECONDS: Final = 20.0
"""Seconds that an interrupted call (Ctrl-C) waits for its end in the loop's thread."""


class _Loop:
    """The event loop and its thread, from the first lease to the end of the last.

    Not anyio's provider: that waits for its thread when it is collected, and after a fork the thread does not exist.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases = 0
        self._thread: threading.Thread | None = None
        self._portal: BlockingPortal | None = None

    def acquire(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                self._portal = self._started()
            self._leases += 1
            return self._portal

    def release(self) -> None:
        with self._lock:
            self._leases -= 1
            if self._leases:
                return
            portal, self._portal = self._portal, None
            assert portal is not None
            assert self._thread is not None
            portal.call(portal.stop)
            self._thread.join()

    def _started(self) -> BlockingPortal:
        ready: Future[BlockingPortal] = Future()

        async def serve() -> None:
            async with BlockingPortal() as portal:
                ready.set_result(portal)
                await portal.sleep_until_stopped()

        def run() -> None:
            try:
                anyio.run(serve, backend="asyncio", backend_options=_options)
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._thread = threading.Thread(target=run, name="statehold-client", daemon=True)
        self._thread.start()
        return ready.result()


_loop = _Loop()


class Portal:
    """A lease of the thread, from start() to stop(). Calls may come from any thread."""

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._forked = False

    def start(self, user: Closing) -> None:
        """Take the lease; `user` is closed at the end of the program, if it is still open."""
        self._portal = _loop.acquire()
        _open.append(user)
        _leases.add(self)

    def stop(self, user: Closing) -> None:
        """Give the lease back; the thread ends with the last lease. May be called twice."""
        portal, self._portal = self._portal, None
        if portal is not None:
            _open.remove(user)
            _leases.discard(self)
            _loop.release()

    def lost(self) -> None:
        """Forget the thread, which a fork leaves behind."""
        self._portal, self._forked = None, True

    def run(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """Run a function in the thread and return its result. An interrupt (Ctrl-C) cancels it.

        Raises:
            RuntimeError: the lease was given back.
        """
        over = threading.Event()

        async def work() -> T:
            try:
                return await function(*args, **options)
            finally:
                over.set()

        future = self._begun(work)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                # Wait until the cancelled call has cleaned up in the thread.
                over.wait(LEAVE_SECONDS)
            raise

    async def wait(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """The same for a task of another event loop. Cancelling the task cancels it.

        Raises:
            RuntimeError: the lease was given back.
        """
        return await asyncio.wrap_future(self._begun(partial(function, *args, **options)))

    def _begun(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        if self._forked:
            raise RuntimeError("the client was opened before a fork: connect again in this process")
        if self._portal is None:
            raise RuntimeError("the client is not open: use it inside of `with connect(...)`")
        return self._portal.start_task_soon(function)

    @property
    def is_started(self) -> bool:
        return self._portal is not None


def in_thread(function: Callable[..., T], what: str = "a callback") -> Callable[..., Awaitable[T]]:
    """Return a callback that runs `function` in a thread of its own, where it may block, and use the client.

    Cancelling the call that it belongs to leaves it to end by itself.

    Raises:
        TypeError: the function is async; `what` names it in the error.
    """
    # A callable object has `__call__` in its class.
    called_as = getattr(function, "__call__", None)  # noqa: B004 it is asked whether it is async
    if any(map(inspect.iscoroutinefunction, (function, called_as))):
        raise TypeError(f"{what} needs a plain function; `async def` ones are for statehold.client")
    # A limiter of its own, without limit: callbacks that wait for one another must not wait for a thread as well.
    limiter = CapacityLimiter(math.inf)

    async def called(*args: Any) -> T:
        work = partial(function, *args)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)

    return called


def _after_fork() -> None:
    global _loop
    _loop = _Loop()
    _open.clear()
    for lease in list(_leases):
        lease.lost()
    _leases.clear()


def _close_all() -> None:
    for user in reversed(_open):
        with suppress(Exception):
            user.close()


importlib.import_module(
    "concurrent.futures.thread"
)  # It registers its own end when it is imported.
# Runs before the thread pools that the loop needs are shut down, which is before the `atexit` functions.
_at_end: Callable[[Callable[[], None]], object] = getattr(
    threading, "_register_atexit", atexit.register
)
_at_end(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = ["Portal", "in_thread"]
