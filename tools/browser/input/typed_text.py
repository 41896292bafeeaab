"""The texts that a person types, pastes and dictates, put together from events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .events import (
    AnyInput,
    CompositionInput,
    CopyInput,
    DialogInput,
    FieldInput,
    KeyInput,
    MouseInput,
    PasteInput,
    TextInput,
    TouchInput,
)
from .keyboard import text_of_key

MAX_CHARACTERS: Final = 10_000
"""Characters of a text before it ends."""


class TypedText:
    """The text under way. It ends with a press elsewhere, another tab, or a key that moves on; `hide` then gets it."""

    def __init__(self, hide: Callable[[str], None]) -> None:
        self._hide = hide
        self._characters: list[str] = []
        self._place: object = None
        self._composed = ""
        """The state of a composition that has not ended."""
        self._is_erasing = False

    def note(self, event: AnyInput, place: object) -> None:
        """Add what an event types. `place` is the page that gets it."""
        if isinstance(event, CopyInput) or _is_move(event):
            return
        if isinstance(event, FieldInput):
            self._hide(event.value)
            return
        if isinstance(event, CompositionInput):
            self._composed = event.text
            self._place = place
            return
        if place is not self._place or len(self._characters) > MAX_CHARACTERS:
            self.end()
            self._place = place
        if isinstance(event, TextInput | PasteInput):
            self._composed = ""
            self._characters += event.text
            if isinstance(event, PasteInput) and event.text:
                self._hide(event.text)
        elif isinstance(event, DialogInput):
            self._hide(event.text or "")
        elif isinstance(event, KeyInput):
            self._record_key(event)
        else:
            self.end()

    def end(self) -> None:
        """Hide the text under way."""
        text, composed = "".join(self._characters), self._composed
        self._characters.clear()
        self._composed = ""
        for each in (text, composed, text + composed if composed else ""):
            if each:
                self._hide(each)

    def _record_key(self, event: KeyInput) -> None:
        if event.action == "up" or event.key in _HELD:
            return
        text = text_of_key(event)
        if event.key == "Backspace" and not event.modifiers:
            if not self._is_erasing:
                # A page may have noted the text before it was changed.
                self._hide("".join(self._characters))
            del self._characters[-1:]
            self._is_erasing = True
            return
        if text and text.isprintable():
            self._characters += text
        elif event.key != "Dead":
            self.end()
        self._is_erasing = False


_HELD: Final = frozenset({"Shift", "Control", "Alt", "AltGraph", "Meta", "CapsLock"})
_LEAVING: Final = frozenset({"Enter", "Tab", "Escape"})


def is_edit(event: AnyInput) -> bool:
    """Whether an event may change the text of a field."""
    if isinstance(event, KeyInput):
        return event.action == "down" and event.key not in _HELD
    return isinstance(event, TextInput | PasteInput | CompositionInput | FieldInput)


def may_leave(event: AnyInput) -> bool:
    """Whether an event may send the text of a field, or move on from it."""
    if isinstance(event, KeyInput):
        return event.action == "down" and event.key in _LEAVING
    return not (isinstance(event, CopyInput) or is_edit(event) or _is_move(event))


def _is_move(event: AnyInput) -> bool:
    """Whether a pointer only moves, or lets go."""
    return isinstance(event, MouseInput | TouchInput) and event.action not in ("down", "start")
