"""The background thread in which the blocking client's event loop runs: one for all hubs, while any of them is open."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import importlib.util
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio.to_thread
from anyio.from_thread import BlockingPortal, BlockingPortalProvider

T = TypeVar("T")


class Closing(Protocol):
    """Something that uses the thread and can be closed."""

    def close(self) -> None: ...


_options: Final = {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
_provider: Final = BlockingPortalProvider("asyncio", _options)
_open: Final[list[Closing]] = []


class Portal:
    """A lease of the thread, from start() to stop(). Calls may come from any thread."""

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None

    def start(self, user: Closing) -> None:
        """Take the lease; `user` is closed when the program ends before it was."""
        self._portal = _provider.__enter__()
        _open.append(user)

    def stop(self, user: Closing) -> None:
        """Give it back; the thread ends with the last one. May be called twice."""
        portal, self._portal = self._portal, None
        if portal is not None:
            _open.remove(user)
            _provider.__exit__(None, None, None)

    def run(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """Run something there and return what it returns. Being interrupted (Ctrl-C) cancels it.

        Raises:
            RuntimeError: the lease was given back.
        """
        future = self._begun(partial(function, *args, **options))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def wait(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """The same for a task of another event loop. Cancelling the task cancels it.

        Raises:
            RuntimeError: the lease was given back.
        """
        return await asyncio.wrap_future(self._begun(partial(function, *args, **options)))

    def _begun(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        if self._portal is None:
            raise RuntimeError("the hub is not open: use it inside of `with connect(...)`")
        return self._portal.start_task_soon(function)

    @property
    def is_started(self) -> bool:
        return self._portal is not None


def in_thread(function: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Return a callback that runs `function` in a thread of its own, where it may block, and use the client."""

    async def called(*args: Any) -> T:
        return await anyio.to_thread.run_sync(lambda: function(*args))

    return called


def _close_all() -> None:
    for user in reversed(_open):
        with suppress(Exception):
            user.close()


importlib.import_module(
    "concurrent.futures.thread"
)  # It registers its own end when it is imported.
# Before the pools of threads that the loop needs are shut down, which is before what `atexit` runs.
_at_end: Callable[[Callable[[], None]], object] = getattr(
    threading, "_register_atexit", atexit.register
)
_at_end(_close_all)

__all__ = ["Portal", "in_thread"]
