"""Concurrent work: races of two functions, tasks in the background, and events for rare waiters."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from .errors import SessionError, StoreUnavailable
from .one_line import one_line

logger = logging.getLogger("statehold.sessions")

T = TypeVar("T")


class RaceLost(Exception):
    """Raised by race() when `other` ended first; `work` was cancelled."""


async def race(other: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` and `other` concurrently until one of them ends, and return the result of `work`.

    Raises:
        RaceLost: `other` ended first.
        Exception: as `work` raised it.
    """
    error_of_work: Exception | None = None
    results: list[T] = []
    async with anyio.create_task_group() as tasks:

        async def end_race() -> None:
            await other()
            tasks.cancel_scope.cancel()

        tasks.start_soon(end_race)
        try:
            results.append(await work())
        except Exception as error:
            # Not through the task group, which would wrap it.
            error_of_work = error
        # Shielded: a caller that is cancelled at this moment still gets the result, so that it can undo the work.
        tasks.cancel_scope.shield = True
        tasks.cancel_scope.cancel()
    if error_of_work is not None:
        raise error_of_work
    if not results:
        raise RaceLost
    return results[0]


class LazyEvent:
    """An event that takes little memory until it is waited for. A call has several, and few are waited for."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        """Wait until it is set. If it is, return at once."""
        if self._is_set:
            return
        event = self._event = self._event or anyio.Event()
        try:
            await event.wait()
        finally:
            if not event.statistics().tasks_waiting:
                self._event = None


class BackgroundTasks:
    """Tasks that outlive the call that starts them. `async with` opens it; leaving it cancels them."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._group is not None
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(kind, error, traceback)

    @property
    def is_open(self) -> bool:
        """Whether tasks can be started."""
        return self._group is not None and not self._group.cancel_scope.cancel_called

    def start(self, work: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Start a task. A failure ends all of them."""
        assert self._group is not None, "the background tasks are not open"
        self._group.start_soon(work, *args)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Start a task whose failure is logged and stops nothing else."""
        self.start(_log_failure, work, args)


async def _log_failure(
    work: Callable[..., Coroutine[Any, Any, object]], args: tuple[object, ...]
) -> None:
    try:
        await work(*args)
    except (SessionError, StoreUnavailable) as error:
        logger.warning("background work failed: %s", one_line(str(error)))
    except Exception:
        logger.exception("background work failed")


def unwrap_group(error: BaseException) -> BaseException:
    """Return the only exception of nested groups, such as those of task groups; a group of several stays as it is."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if len(group.exceptions) != 1:
            return group
        error = group.exceptions[0]
    return error
