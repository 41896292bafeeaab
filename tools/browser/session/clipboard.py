"""The clipboard of each session: the one of a browser process is for all its contexts, so they take turns with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from .failures import ToolFailed

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Route

    from ..config import BrowserConfig

TURN_SECONDS: Final = 50.0
"""How long one may wait for the turns of other sessions."""
HOLD_SECONDS: Final = 2.0
KEEPER_SECONDS: Final = 5.0
_PLACE: Final = "https://clipboard.statehold.invalid/"
"""A page that exists nowhere: only a page of a safe origin may use the clipboard."""

_COMMANDS: Final = frozenset(
    {"control", "controlleft", "controlright", "controlormeta"} | {"meta", "metaleft", "metaright"}
)

_SWAP: Final = """async ([given, kept]) => {
  const found = {};
  for (const item of await navigator.clipboard.read())
    for (const type of item.types)
      if (type.startsWith("text/")) found[type] = await (await item.getType(type)).text();
  const wanted = kept && Object.keys(found).length ? found : given;
  const parts = {};
  for (const [type, text] of Object.entries(wanted)) parts[type] = new Blob([text], {type});
  if (Object.keys(parts).length) await navigator.clipboard.write([new ClipboardItem(parts)]);
  else await navigator.clipboard.writeText("");
  return found;
}"""
"""Puts something onto the clipboard, unless what is there is to be kept, and returns what was there."""


def uses_clipboard(key: str) -> bool:
    """Whether a key, as Playwright writes it, may copy, cut or paste."""
    *held, last = key.lower().split("+")
    last = last.removeprefix("key")
    if last in ("c", "x", "v"):
        return not _COMMANDS.isdisjoint(held)
    return last in ("copy", "cut", "paste") or (last in ("insert", "delete") and bool(held))


def owns_browser(config: BrowserConfig) -> bool:
    """Whether each session has a browser process of its own, because pages may use the clipboard at any time."""
    return any(name.startswith("clipboard") for name in config.permissions)


class Clipboard:
    """The clipboard of one session: texts by their type. What was copied is gone with the session's context."""

    def __init__(self, turns: ClipboardTurns) -> None:
        self._turns = turns
        self._token = object()
        self._texts: dict[str, str] = {}

    def note_action(self) -> None:
        """Note that the session does something, by which a page of it may copy."""
        self._turns.note(self._token)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Have what the session copied on the clipboard of the process while the block runs, and keep what is there then.

        What a page copied by itself is the session's when no other session did anything since the last turn; else nobody
        knows whose it is, and nobody gets it.

        Raises:
            ToolFailed: another session's turn does not end.
        """
        async with self._turns.one() as keeper:
            alone = self._turns.alone(self._token)
            # What another session copies from now on is not forgotten with this turn.
            self._turns.forget()
            await keeper.evaluate(_SWAP, [self._texts, alone])
            try:
                # A key that opens a dialog has not been pressed before that is answered.
                with anyio.move_on_after(HOLD_SECONDS):
                    yield
            finally:
                swapped = False
                with anyio.move_on_after(KEEPER_SECONDS, shield=True), suppress(Exception):
                    self._texts = await keeper.evaluate(_SWAP, [{}, False])
                    swapped = True
                if not swapped:
                    # Its texts are still there, and nobody else's.
                    self._turns.note(self._token)
                    self._turns.note(object())


class ClipboardTurns:
    """Who has the clipboard of a browser process. Lives as long as the browser; its page is opened with the first turn."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._lock = anyio.Lock()
        self._keeper: Page | None = None
        self._actor: object | None = None
        self._several = False

    def note(self, actor: object) -> None:
        """Note that a session did something. A session that ended since is not forgotten: what it copied is still there."""
        self._several = self._several or self._actor not in (None, actor)
        self._actor = actor

    def alone(self, actor: object) -> bool:
        """Whether no other session did anything since forget()."""
        return not self._several and self._actor in (None, actor)

    def forget(self) -> None:
        self._actor, self._several = None, False

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Page]:
        """Wait for a turn, and yield the page that can read and write the clipboard.

        Raises:
            ToolFailed: another turn does not end, or the browser lets nobody use its clipboard.
        """
        try:
            with anyio.fail_after(TURN_SECONDS):
                await self._lock.acquire()
        except TimeoutError:
            raise ToolFailed("Another session is using the clipboard; try again.") from None
        try:
            yield await self._open()
        finally:
            self._lock.release()

    async def _open(self) -> Page:
        if self._keeper is not None and not self._keeper.is_closed():
            return self._keeper
        context = await self._browser.new_context(
            permissions=["clipboard-read", "clipboard-write"], service_workers="block"
        )
        try:
            with anyio.fail_after(KEEPER_SECONDS):
                await context.route("**/*", _answer)
                page = await context.new_page()
                await page.goto(_PLACE)
        except BaseException as error:
            with anyio.move_on_after(KEEPER_SECONDS, shield=True), suppress(Exception):
                await context.close()
            if not isinstance(error, Exception):
                raise
            raise ToolFailed("The clipboard of this browser cannot be used.") from error
        self._keeper = page
        return page


async def _answer(route: Route) -> None:
    await route.fulfill(body="", content_type="text/html")


__all__ = ["Clipboard", "owns_browser", "uses_clipboard"]
