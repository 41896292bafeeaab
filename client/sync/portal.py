"""The background thread in which the event loop of the blocking client runs, and callbacks that may block.

All open clients share one thread, from the first that is opened to the last that is closed.
"""

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
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.from_thread import BlockingPortal, BlockingPortalProvider

from .. import options as async_options
from ..messages import Message, SummaryAnswer
from ..protocol.elicitation import AnswerLike, Question

T = TypeVar("T")

ElicitationCallback: TypeAlias = Callable[[Question], AnswerLike]
"""Answers a question, in a thread of its own: a mapping that fits its schema, None to decline, or an Answer."""
ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], None]
"""Receives the progress of a call, in a thread of its own: the amount done, the total, and a message."""

SummaryFunction: TypeAlias = Callable[[list[Message]], SummaryAnswer]
"""Sums up messages."""


class CallOptions(async_options.BasicCallOptions, total=False):
    """The options of a call."""

    progress_callback: ProgressCallback | None
    """Receives the progress of the call."""


LEAVE_SECONDS: Final = 20.0
"""Seconds that an interrupted call (Ctrl-C) waits for its end in the loop's thread."""


class Closable(Protocol):
    """A user of the thread that is closed when the program ends."""

    def close(self) -> None: ...


def _new_provider() -> BlockingPortalProvider:
    uvloop = importlib.util.find_spec("uvloop") is not None
    return BlockingPortalProvider("asyncio", {"use_uvloop": uvloop})


_provider = _new_provider()
_open: Final[dict[Portal, Closable]] = {}
_abandoned: Final[list[BlockingPortalProvider]] = []
"""Providers of the parent process. uvloop forks in the thread itself, which a collected provider would try to join."""


class Portal:
    """A lease of the thread, from start() to stop(). Calls may come from any thread."""

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._is_forked = False

    @property
    def is_started(self) -> bool:
        return self._portal is not None

    def start(self, user: Closable) -> None:
        """Take the lease; `user` is closed at the end of the program, if it is still open."""
        self._portal = _provider.__enter__()
        _open[self] = user

    def stop(self) -> None:
        """Give the lease back; the thread ends with the last lease. May be called twice."""
        portal, self._portal = self._portal, None
        if portal is not None:
            del _open[self]
            _provider.__exit__(None, None, None)

    def abandon(self) -> None:
        """Forget the thread, which does not exist in a forked process."""
        portal, self._portal, self._is_forked = self._portal, None, True
        if portal is not None:
            # stop() only marks the portal as stopped, without awaiting anything: the copy of the provider that is
            # collected in this process would otherwise wait for a thread that is not there.
            with suppress(StopIteration):
                portal.stop().send(None)

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

        future = self._start_task(work)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                # Wait until the cancelled call has cleaned up in the thread.
                over.wait(LEAVE_SECONDS)
            raise

    async def wait(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """Run a function in the thread for a task of another event loop. Cancelling the task cancels it.

        Raises:
            RuntimeError: the lease was given back.
        """
        return await asyncio.wrap_future(self._start_task(partial(function, *args, **options)))

    def _start_task(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        if self._is_forked:
            raise RuntimeError("the client was opened before a fork: connect again in this process")
        if self._portal is None:
            raise RuntimeError("the client is not open: use it inside of `with connect(...)`")
        return self._portal.start_task_soon(function)


def in_thread(function: Callable[..., T], name: str = "a callback") -> Callable[..., Awaitable[T]]:
    """Return a callback that runs `function` in a thread of its own, where it may block, and use the client.

    Cancelling the call that it belongs to leaves it to end by itself.

    Raises:
        TypeError: the function is async; `name` is for the error.
    """
    # A callable object has `__call__` in its class.
    called_as = getattr(function, "__call__", None)  # noqa: B004 it is asked whether it is async
    if any(map(inspect.iscoroutinefunction, (function, called_as))):
        raise TypeError(f"{name} needs a plain function; `async def` ones are for statehold.client")
    # A limiter of its own, without limit: callbacks that wait for one another must not wait for a thread as well.
    limiter = CapacityLimiter(math.inf)

    async def call(*args: Any) -> T:
        work = partial(function, *args)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)

    return call


def async_call_options(options: CallOptions) -> async_options.CallOptions:
    """Return the options for the same call of the async client."""
    callback = options.get("progress_callback")
    return {
        **options,
        "progress_callback": None if callback is None else in_thread(callback, "progress_callback"),
    }


def _abandon_all() -> None:
    global _provider
    for portal in _open:
        portal.abandon()
    _open.clear()
    _abandoned.append(_provider)
    _provider = _new_provider()


def _close_all() -> None:
    for user in reversed(list(_open.values())):
        with suppress(Exception):
            user.close()


# It registers its own end when it is imported.
importlib.import_module("concurrent.futures.thread")
# Runs before the thread pools that the loop needs are shut down, which is before the `atexit` functions.
_at_end: Callable[[Callable[[], None]], object] = getattr(
    threading, "_register_atexit", atexit.register
)
_at_end(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)

__all__ = [
    "CallOptions",
    "ElicitationCallback",
    "Portal",
    "ProgressCallback",
    "SummaryFunction",
    "async_call_options",
    "in_thread",
]
