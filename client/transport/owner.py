"""A context manager that is entered and left in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio

from ...sessions.concurrency import unwrap_group

T = TypeVar("T")


class ContextOwner(Generic[T]):
    """Holds a context manager open from start() to stop(), which may be called in different tasks, inside any scope.

    A task group that is entered in the caller's block would cancel the caller when it fails, and turn what the caller
    raises into a group of exceptions. This one does neither. The context of the task is empty, so that the
    caller's context variables do not live as long as the context manager.
    """

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._is_settled = anyio.Event()
        self._ending = anyio.Event()
        self._ended = anyio.Event()
        self._task: asyncio.Task[None] | None = None
        self._value: list[T] = []
        self._failure: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the context manager was left, or has failed."""
        return self._ended.is_set()

    async def start(self) -> T:
        """Enter it and return its value. When that fails or is cancelled, nothing is left behind."""
        loop = running_loop()
        self._task = contextvars.Context().run(loop.create_task, self._own())
        try:
            await self._is_settled.wait()
        except BaseException:
            self._task.cancel()
            await self.stop()
            raise
        if not self._value:
            await self.stop()
            assert self._failure is not None
            raise self._failure
        return self._value[0]

    async def stop(self) -> None:
        """Leave it, and wait until that is done even when the caller is cancelled. May be called twice."""
        self._ending.set()
        if self._task is not None:
            with anyio.CancelScope(shield=True):
                await self._ended.wait()

    async def _own(self) -> None:
        try:
            async with self._manager as value:
                self._value.append(value)
                self._is_settled.set()
                await self._ending.wait()
        except BaseException as error:
            self._failure = unwrap_group(error)
            if not isinstance(error, Exception) and not self._ending.is_set():
                raise
        finally:
            self._is_settled.set()
            self._ended.set()


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this task.

    Raises:
        RuntimeError: the event loop is not asyncio's.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "statehold.client needs asyncio: under trio, use statehold.client.sync in a thread"
        ) from None


__all__ = ["ContextOwner", "running_loop"]
