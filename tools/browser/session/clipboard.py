"""The clipboard of each session. All contexts of a browser process share its one clipboard, so sessions take turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from ..devtools.pages import close_context, new_context
from ..errors import BrowserToolFailed

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Route

    from ..config import BrowserConfig

TURN_SECONDS: Final = 50.0
"""The longest wait, in seconds, for the turns of other sessions."""
HOLD_SECONDS: Final = 2.0
KEEPER_SECONDS: Final = 5.0
_ADDRESS: Final = "https://clipboard.statehold.invalid/"
"""The address of a page that is answered here: only a page of a secure origin may use the clipboard."""

_COMMANDS: Final = frozenset(
    {"control", "controlleft", "controlright", "controlormeta"} | {"meta", "metaleft", "metaright"}
)

_SWAP: Final = """async ([texts, keepContent]) => {
  const content = {};
  for (const item of await navigator.clipboard.read())
    for (const type of item.types)
      if (type.startsWith("text/")) content[type] = await (await item.getType(type)).text();
  const next = keepContent && Object.keys(content).length ? content : texts;
  const parts = {};
  for (const [type, text] of Object.entries(next)) parts[type] = new Blob([text], {type});
  if (Object.keys(parts).length) await navigator.clipboard.write([new ClipboardItem(parts)]);
  else await navigator.clipboard.writeText("");
  return content;
}"""
"""Puts texts on the clipboard, unless it is to keep its content, and returns the content it had."""


def uses_clipboard(key: str) -> bool:
    """Return whether a key, as Playwright writes it, may copy, cut or paste."""
    *modifiers, last = key.lower().split("+")
    last = last.removeprefix("key")
    if last in ("c", "x", "v"):
        return not _COMMANDS.isdisjoint(modifiers)
    return last in ("copy", "cut", "paste") or (last in ("insert", "delete") and bool(modifiers))


def owns_browser(config: BrowserConfig) -> bool:
    """Return whether each session has a browser process of its own, because pages may use the clipboard at any time.

    So has a session that is attached to tabs: to detach, it disconnects.
    """
    return config.is_attached or any(name.startswith("clipboard") for name in config.permissions)


class Clipboard:
    """The clipboard of one session: texts by their type. Lives as long as the session's context."""

    def __init__(self, turns: ClipboardTurns) -> None:
        self._turns = turns
        self._token = object()
        self._texts: dict[str, str] = {}
        self._is_kept = False
        """Whether the texts are newer than the clipboard of the process."""

    def record_action(self) -> None:
        """Record an action of the session, after which one of its pages may have copied a text."""
        self._turns.note(self._token)

    def copy(self, texts: Mapping[str, str]) -> None:
        """Take texts, by their type, that a page copied without the clipboard of the process."""
        self._texts, self._is_kept = dict(texts), True

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Put the session's texts on the clipboard of the process while the block runs, then save the content.

        Text that a page copied outside a turn belongs to this session if no other session acted since the last turn.
        Otherwise its owner is unknown, and it is dropped.

        Raises:
            BrowserToolFailed: The turn of another session does not end.
        """
        async with self._turns.take() as page:
            is_only_actor = self._turns.is_only_actor(self._token)
            # Forget now rather than after the turn: actions of other sessions during the turn count for the next one.
            self._turns.forget()
            keeps_content = is_only_actor and not self._is_kept
            self._is_kept = False
            await page.evaluate(_SWAP, [self._texts, keeps_content])
            try:
                # A key press that opens a dialog does not return until the dialog is answered.
                with anyio.move_on_after(HOLD_SECONDS):
                    yield
            finally:
                is_saved = False
                with anyio.move_on_after(KEEPER_SECONDS, shield=True), suppress(Exception):
                    self._texts = await page.evaluate(_SWAP, [{}, False])
                    is_saved = True
                if not is_saved:
                    # The session's texts are still on the clipboard. Two actors are noted so that no session may keep them.
                    self._turns.note(self._token)
                    self._turns.note(object())


class ClipboardTurns:
    """The turns of sessions at the clipboard of a browser process.

    Lives as long as the browser; its page is opened with the first turn.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._lock = anyio.Lock()
        self._page: Page | None = None
        self._actor: object | None = None
        self._several = False

    def note(self, actor: object) -> None:
        """Record an action of a session. A session that has ended still counts, because its text may be on the clipboard."""
        self._several = self._several or self._actor not in (None, actor)
        self._actor = actor

    def is_only_actor(self, actor: object) -> bool:
        """Return whether no other session acted since forget()."""
        return not self._several and self._actor in (None, actor)

    def forget(self) -> None:
        self._actor, self._several = None, False

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[Page]:
        """Wait for a turn, and yield the page that can read and write the clipboard.

        Raises:
            BrowserToolFailed: Another turn does not end, or the browser does not allow the use of its clipboard.
        """
        try:
            with anyio.fail_after(TURN_SECONDS):
                await self._lock.acquire()
        except TimeoutError:
            raise BrowserToolFailed("Another session is using the clipboard; try again.") from None
        try:
            yield await self._open()
        finally:
            self._lock.release()

    async def _open(self) -> Page:
        if self._page is not None and not self._page.is_closed():
            return self._page
        context = await new_context(
            self._browser,
            permissions=["clipboard-read", "clipboard-write"],
            service_workers="block",
        )
        try:
            with anyio.fail_after(KEEPER_SECONDS):
                await context.route("**/*", _answer)
                page = await context.new_page()
                await page.goto(_ADDRESS)
        except BaseException as error:
            with anyio.move_on_after(KEEPER_SECONDS, shield=True), suppress(Exception):
                await close_context(context)
            if not isinstance(error, Exception):
                raise
            raise BrowserToolFailed("The clipboard of this browser cannot be used.") from error
        self._page = page
        return page


async def _answer(route: Route) -> None:
    await route.fulfill(body="", content_type="text/html")
