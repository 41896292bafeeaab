"""The fields that a person edited: their texts differ from what was typed where a page formats it, or it was corrected."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from .selected_text import MAX_CHARACTERS, edited_text

if TYPE_CHECKING:
    from playwright.async_api import Frame

    from ..session.session import BrowserSession
    from ..session.tab import Tab

SECONDS: Final = 1.0
"""Seconds that a page gets to say what stands in its fields."""
MAX_FIELDS: Final = 200
"""Fields of a frame that are read."""
_FIELDS: Final = "input, textarea, [contenteditable]"
_TEXTS: Final = f"""elements => elements.slice(0, {MAX_FIELDS}).map(element => [
  String(element.value ?? element.innerText).slice(0, {MAX_CHARACTERS} + 1),
  element.value !== undefined && element.value !== element.defaultValue && !/^(checkbox|radio|file)$/.test(element.type),
])"""
"""Returns the text of each field, and whether it differs from that of the document."""


class EditedFields:
    """The fields of a session while a person has control. A text that stood in a field before is not the person's."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._before: dict[Tab, set[str]] = {}
        """The lines of all fields, by the tabs that the person edits."""

    async def begin(self, tab: Tab) -> None:
        """Note the texts of a tab before its first edit. A second call does nothing."""
        if tab not in self._before:
            self._before[tab] = {
                line.strip() for text, _ in await _texts_of(tab) for line in text.splitlines()
            }

    def add_all(self) -> None:
        """Count the texts that stand in the fields of all tabs as the person's."""
        self._before |= {tab: set() for tab in self._session.tabs}

    async def leave(self, tab: Tab) -> None:
        """Hide the text of the field with the focus, which the next event may send."""
        if tab not in self._before or not _answers(tab):
            return
        with anyio.move_on_after(SECONDS), suppress(Exception):
            self._hide(tab, await edited_text(tab.page))

    async def end(self) -> None:
        """Hide the texts of all fields whose texts are new."""
        for tab in list(self._before):
            await self.leave(tab)
            for text, is_changed in await _texts_of(tab):
                if is_changed:
                    self._hide(tab, text)

    def _hide(self, tab: Tab, text: str) -> None:
        # A longer one is a document, in which little is the person's.
        if len(text) > MAX_CHARACTERS:
            return
        for line in text.splitlines():
            if line.strip() not in self._before[tab]:
                self._session.secrets.hide(line.strip())


async def _texts_of(tab: Tab) -> list[tuple[str, bool]]:
    texts: list[tuple[str, bool]] = []
    if not _answers(tab):
        return texts

    async def read(frame: Frame) -> None:
        with anyio.move_on_after(SECONDS), suppress(Exception):
            found = await frame.locator(_FIELDS).evaluate_all(_TEXTS)
            texts.extend((str(text), bool(new)) for text, new in cast("list[Any]", found))

    async with anyio.create_task_group() as tasks:
        for frame in tab.page.frames:
            tasks.start_soon(read, frame)
    return texts


def _answers(tab: Tab) -> bool:
    return not tab.closed and not tab.crashed and tab.modal_text is None
