"""The codes and texts of keys, as Chromium wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .events import KeyInput

ALT: Final = 1
CONTROL: Final = 2
META: Final = 4
SHIFT: Final = 8

_CODES: Final[Mapping[str, int]] = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Shift": 16,
    "Control": 17,
    "Alt": 18,
    "AltGraph": 18,
    "Pause": 19,
    "CapsLock": 20,
    "Escape": 27,
    " ": 32,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Insert": 45,
    "Delete": 46,
    "Meta": 91,
    "ContextMenu": 93,
    **{f"F{number}": 111 + number for number in range(1, 13)},
}
"""The codes of Windows by the names of keys, for viewers that do not know them."""
COMPOSITION: Final = 229
"""The code of a key that an input method handles."""


def key_code_of(event: KeyInput) -> int:
    """Return the code of Windows, which pages see as `keyCode` and by which Chromium edits text."""
    if event.key_code:
        return event.key_code
    if event.key == "Dead":
        return COMPOSITION
    if event.key in _CODES:
        return _CODES[event.key]
    letter = event.code.removeprefix("Key").removeprefix("Digit")
    if len(letter) == 1 and letter.isascii():
        return ord(letter)
    upper = event.key.upper()
    return ord(upper) if len(upper) == 1 and upper.isascii() and upper.isalnum() else 0


def text_of_key(event: KeyInput) -> str:
    """Return the text that a key types; "" if it types none."""
    if event.text is not None:
        return event.text
    if event.key == "Enter":
        return "\r"
    if len(event.key) != 1:
        return ""
    # Control with Alt is how Windows writes AltGraph, which types; so does Option on a Mac, which is Alt.
    command = event.modifiers & (CONTROL | ALT | META)
    types = command in (0, CONTROL | ALT) or (command == ALT and not event.key.isascii())
    return event.key if types else ""


def modifiers_of(event: KeyInput) -> int:
    """Return the modifiers of a key as the page sees them: one that types is no shortcut."""
    is_typed = event.action == "down" and text_of_key(event) not in ("", "\r")
    return event.modifiers & ~(CONTROL | ALT) if is_typed else event.modifiers


def shortcut_of(event: KeyInput) -> str:
    """Return a key with its modifiers, as Playwright writes it."""
    names = {ALT: "Alt", CONTROL: "Control", META: "Meta", SHIFT: "Shift"}
    held = [name for bit, name in names.items() if event.modifiers & bit]
    return "+".join([*held, event.key])
