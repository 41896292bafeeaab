"""Services that are added while a gateway runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup, TaskStatus


class _HeldService:
    """An added service while its task holds it open."""

    def __init__(self) -> None:
        self.leaving = anyio.Event()
        self.closed = anyio.Event()


class AddedServices:
    """Holds added services open, each in a task of its own, until the gateway leaves it."""

    def __init__(self) -> None:
        self._exit = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._held: list[_HeldService] = []

    async def __aenter__(self) -> Self:
        self._tasks = await self._exit.enter_async_context(anyio.create_task_group())
        self._exit.callback(self._leave)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exit.aclose()

    def _leave(self) -> None:
        for held in self._held:
            held.leaving.set()

    @asynccontextmanager
    async def open(self, service: object) -> AsyncGenerator[None]:
        """Open a service that has to be opened. An error while it opens is raised here.

        It stays open after the block. If the block raises, it is closed again before this is left, even if the caller is
        cancelled.
        """
        if not isinstance(service, AbstractAsyncContextManager):
            yield
            return
        assert self._tasks is not None
        held = _HeldService()
        await self._tasks.start(self._hold, service, held)  # pyright: ignore[reportUnknownArgumentType]
        self._held.append(held)
        try:
            yield
        except BaseException:
            self._held.remove(held)
            held.leaving.set()
            with anyio.CancelScope(shield=True):
                await held.closed.wait()
            raise

    async def _hold(
        self,
        service: AbstractAsyncContextManager[object],
        held: _HeldService,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        try:
            async with service:
                task_status.started()
                await held.leaving.wait()
        finally:
            held.closed.set()
