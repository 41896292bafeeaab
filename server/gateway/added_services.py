"""Services that are added while a gateway runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup, TaskStatus


class AddedServices:
    """Holds added services open, each in a task of its own, until the gateway leaves it."""

    def __init__(self) -> None:
        self._exit = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._leaving = anyio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        self._exit.callback(self._leaving.set)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exit.aclose()

    async def open(self, service: object) -> None:
        """Open a service that has to be opened. An error while it opens is raised here."""
        if isinstance(service, AbstractAsyncContextManager):
            assert self._tasks is not None
            await self._tasks.start(self._hold, service)  # pyright: ignore[reportUnknownArgumentType]

    async def _hold(
        self, service: AbstractAsyncContextManager[object], *, task_status: TaskStatus[None]
    ) -> None:
        async with service:
            task_status.started()
            await self._leaving.wait()


__all__ = ["AddedServices"]
