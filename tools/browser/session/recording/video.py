"""The videos of one session: one for each page that is open during the recording."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ... import errors
from ...errors import BrowserToolFailed
from ..files import Files, reason
from ..pause_hold import PauseHold

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

BEGIN_SECONDS: Final = 10.0
STOP_SECONDS: Final = 30.0
CURSOR_MILLISECONDS: Final = 800
"""The duration of the animated movement of the mouse to a clicked element."""


class Videos:
    """The videos of a context, on or off. If the context ends while they are on, they are lost."""

    def __init__(
        self,
        context: BrowserContext,
        files: Files,
        holds: set[str],
        *,
        spawn: Callable[..., None],
        add_event: Callable[[str], None],
        is_hidden: Callable[[Page], bool],
    ) -> None:
        self._context = context
        self._is_hidden = is_hidden
        self._files = files
        self._spawn = spawn
        self._add_event = add_event
        self._name = ""
        self._options: dict[str, Any] = {}
        self._cursor = False
        self._running: dict[Page, Path] = {}
        self._saved_files: list[tuple[str, int]] = []
        self._is_chosen = False
        self._first: Path | None = None
        """The file of the first video, which gets the name that the caller chose; others get a number if it is taken."""
        self._turn = anyio.Lock()
        """Held while a video begins or ends: a video that is ended before it has begun would go on."""
        self.pause_hold = PauseHold("a video", holds, spawn=spawn, expire=self._expire)

    async def start(
        self, name: str, *, is_chosen: bool = False, cursor: bool = False, **options: Any
    ) -> None:
        """Begin to record all open pages, and pages that open later. `is_chosen`: the caller chose the name.

        Raises:
            BrowserToolFailed: Videos are already being recorded, or none can be.
        """
        if self.pause_hold.is_active:
            raise BrowserToolFailed(
                "A video is being recorded already; browser_stop_video ends it."
            )
        self._name, self._cursor, self._options = name, cursor, options
        self._saved_files, self._is_chosen, self._first = [], is_chosen, None
        self.pause_hold.begin()
        try:
            for page in self._context.pages:
                if not self._is_hidden(page):
                    await self._film(page)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise
        self._context.on("page", self._on_page)

    def _on_page(self, page: Page) -> None:
        if not self._is_hidden(page):
            self._spawn(self._film, page)

    async def _film(self, page: Page) -> None:
        async with self._turn:
            if self.pause_hold.is_active and page not in self._running:
                await self._begin(page)

    async def _begin(self, page: Page) -> None:
        try:
            path = await self._files.path(self._name)
        except OSError as error:
            raise BrowserToolFailed(f"There is no video: {_why(error)}") from None
        try:
            with anyio.fail_after(BEGIN_SECONDS):
                await page.screencast.start(path=path, **self._options)
                if self._cursor:
                    await page.screencast.show_actions(
                        cursor="pointer",
                        duration=CURSOR_MILLISECONDS,
                        style={"title": "display: none"},
                    )
        except (errors.Error, TimeoutError) as error:
            await self._files.drop(path)
            # Playwright counts the video as started even if the start failed.
            with suppress(errors.Error), anyio.move_on_after(STOP_SECONDS):
                await page.screencast.stop()
            raise BrowserToolFailed(_why(error)) from None
        self._running[page] = path
        self._first = self._first or path

    async def stop(self) -> list[tuple[str, int]]:
        """End all videos and return the names and sizes of their files. Videos of pages that closed themselves are lost.

        The list is empty if no video is on. A cancelled call ends the videos all the same.
        """
        self.pause_hold.end()
        self._context.remove_listener("page", self._on_page)
        with anyio.CancelScope(shield=True):
            async with self._turn:
                for page in list(self._running):
                    await self._end(page)
        files, self._saved_files = self._saved_files, []
        return files

    async def stop_of(self, page: Page) -> None:
        """End the video of one page, before the page is closed; stop() returns its file with the others."""
        if self.pause_hold.is_active:
            async with self._turn:
                await self._end(page)

    async def _end(self, page: Page) -> None:
        path = self._running.pop(page, None)
        if path is None:
            return
        try:
            with anyio.fail_after(STOP_SECONDS):
                await page.screencast.stop()
                if self._cursor:
                    await page.screencast.hide_actions()
            size, name = await self._files.admit(path), path.name
            if self._is_chosen and path == self._first:
                name, is_replaced = await self._files.rename(path, self._name)
                if is_replaced:
                    self._add_event(f"The video {name} replaced the file of that name.")
            self._saved_files.append((name, size))
        except (errors.Error, OSError) as error:
            await self._files.drop(path)
            self._add_event(f"The video {path.name} is lost: {_why(error)}")

    def lose(self) -> None:
        """Remove the incomplete files of videos that were on when the context ended; they cannot be played."""
        for path in self._running.values():
            path.unlink(missing_ok=True)
        self._running.clear()

    async def _expire(self) -> None:
        names = [
            self._files.address(name) + await self._files.deliver(name)
            for name, _ in await self.stop()
        ]
        self._add_event(
            f"The video ended by itself after {self.pause_hold.seconds:g} seconds: {', '.join(names)}"
        )


def _why(error: BaseException) -> str:
    if "ffmpeg" in str(error):
        return "Videos need Playwright's ffmpeg, which is missing; `playwright install ffmpeg` installs it."
    if isinstance(error, TimeoutError):
        return "its page does not answer."
    return f"{reason(error)}." if isinstance(error, OSError) else reason(error)
