"""The trace of one session: what happened in its browser, for Playwright's trace viewer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .call import ToolFailed, first_line
from .files import Files
from .held import Held

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext


class Trace:
    """The trace of a context, on or off. It ends with the context, and is lost then."""

    def __init__(
        self,
        context: BrowserContext,
        files: Files,
        holds: set[str],
        *,
        spawn: Callable[..., None],
        tell: Callable[[str], None],
    ) -> None:
        self._context = context
        self._files = files
        self._tell = tell
        self.held = Held("a trace", holds, spawn=spawn, expire=self._expire)

    async def start(self) -> None:
        """Begin to trace.

        Raises:
            ToolFailed: it is on already.
        """
        if self.held.on:
            raise ToolFailed("A trace is being recorded already; browser_stop_tracing ends it.")
        await self._context.tracing.start(screenshots=True, snapshots=True)
        self.held.begin()

    async def stop(self, name: str = "trace.zip") -> tuple[str, int]:
        """End the trace and return the name and the size of its file.

        Raises:
            ToolFailed: none is on, or it cannot be saved.
        """
        from playwright.async_api import Error

        if not self.held.on:
            raise ToolFailed("No trace is being recorded; browser_start_tracing begins one.")
        self.held.end()
        path = await self._files.path(name)
        try:
            await self._context.tracing.stop(path=path)
            return path.name, await self._files.admit(path)
        except (Error, OSError) as error:
            await self._files.drop(path)
            reason = first_line(error) if isinstance(error, Error) else error.strerror or error
            raise ToolFailed(f"The trace is lost: {reason}.") from None

    async def _expire(self) -> None:
        with suppress(ToolFailed):
            name, _ = await self.stop()
            self._tell(
                f"The trace ended by itself after {self.held.seconds:g} seconds: {self._files.address(name)}"
            )


__all__ = ["Trace"]
