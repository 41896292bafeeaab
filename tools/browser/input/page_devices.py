"""A person's mouse, touch and keys in the page of one tab, as commands of DevTools.

Not Playwright's mouse and keyboard: they know only the keys of an American keyboard, and no composition.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from ....sessions.json_codec import JSON
from ..devtools.world import send_command
from ..errors import BrowserToolFailed
from ..session.clipboard import uses_clipboard
from .events import CompositionInput, KeyInput, MouseInput, TextInput, TouchInput
from .keyboard import key_code_of, modifiers_of, shortcut_of, text_of_key

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

    from ..session.session import BrowserSession
    from ..session.tab import Tab

EVENT_SECONDS: Final = 3.0
"""Seconds for which an event waits for its page; the page still gets it later."""
CLOSE_SECONDS: Final = 1.0
LEFT: Final = 1
SCROLL_PIXELS: Final = 2.0
"""CSS pixels that a page may have scrolled since the picture in which a person saw the place of a press."""
_MOVED: Final = (
    "The page had scrolled on since the picture, so nothing was pressed; look again, then press."
)
_BUTTONS: Final = {"none": 0, "left": LEFT, "right": 2, "middle": 4, "back": 8, "forward": 16}
_ACTIONS: Final = {"move": "mouseMoved", "down": "mousePressed", "up": "mouseReleased"}


class PageDevices:
    """The input into one page, and the buttons and keys that are held there. aclose() releases them."""

    def __init__(self, session: BrowserSession, tab: Tab) -> None:
        self.tab = tab
        self._session = session
        self._devtools: CDPSession | None = None
        self._held_buttons = 0
        self._held_keys: dict[str, KeyInput] = {}
        self._position = (0.0, 0.0)
        self._has_touch = False
        self._drag: JSON | None = None
        """The data of a drag, which the browser hands to us instead of the desktop."""
        self._is_drag_inside = False
        self._is_refused = False
        """Whether the last press was refused; its release is left out."""

    async def open(self) -> None:
        """Begin. A script in the page starts to record edits, so that they can be saved.

        Raises:
            playwright's Error: The page is gone.
        """
        page = self.tab.page
        self._devtools = devtools = await self._session.watch.devtools(page)
        devtools.on("Input.dragIntercepted", self._on_drag)
        await self._send("Input.setInterceptDrags", {"enabled": True})
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._session.watch.world(page)

    def _on_drag(self, event: JSON) -> None:
        self._drag, self._is_drag_inside = event["data"], False

    async def aclose(self) -> None:
        """Release all that is held, and end."""
        devtools = self._devtools
        if devtools is None:
            return
        # The page may be gone, or blocked.
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            if not self.tab.closed and self.tab.dialog is None:
                await self._release()
        # The browser does its drags by itself when the session is gone.
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await self._session.watch.detach(self.tab.page, devtools)
        self._devtools = None

    async def _release(self) -> None:
        x, y = self._position
        if self._drag is not None:
            await self._drag_event("dragCancel", x, y, 0)
            self._drag, self._held_buttons = None, 0
        for button, bit in _BUTTONS.items():
            if self._held_buttons & bit:
                await self.mouse(MouseInput(type="mouse", action="up", x=x, y=y, button=button))  # pyright: ignore[reportArgumentType]
        for held in list(self._held_keys.values()):
            await self.key(held.model_copy(update={"action": "up", "modifiers": 0}))
        if self._has_touch:
            await self.touch(TouchInput(type="touch", action="cancel"))

    async def mouse(self, event: MouseInput) -> None:
        self._position = x, y = event.x, event.y
        if self._drag is not None and event.action != "wheel":
            await self._continue_drag(event)
            return
        if event.action == "wheel":
            delta: JSON = {"deltaX": event.delta_x, "deltaY": event.delta_y}
            wheel: JSON = {"type": "mouseWheel", "x": x, "y": y, "modifiers": event.modifiers}
            await self._send("Input.dispatchMouseEvent", {**wheel, **delta})
            return
        bit = _BUTTONS[event.button]
        if event.action == "up" and not self._held_buttons & bit and self._is_refused:
            return
        if event.action == "down":
            await self._require_place(event)
            self._held_buttons |= bit
        elif event.action == "up":
            self._held_buttons &= ~bit
        params: JSON = {
            "type": _ACTIONS[event.action],
            "x": x,
            "y": y,
            "modifiers": event.modifiers,
            "button": event.button if event.action != "move" else self._held_button(),
            "buttons": self._held_buttons,
            "clickCount": 0 if event.action == "move" else event.clicks,
        }
        await self._send("Input.dispatchMouseEvent", params)

    def _held_button(self) -> str:
        return next((name for name, bit in _BUTTONS.items() if self._held_buttons & bit), "none")

    async def _require_place(self, event: MouseInput | TouchInput) -> None:
        """Do nothing if the page still shows what the person saw at the place of a press.

        Raises:
            BrowserToolFailed: It has scrolled since.
        """
        self._is_refused = False
        if event.scroll_x is None or event.scroll_y is None:
            return
        view: JSON | None = (await self._send("Page.getLayoutMetrics", {}) or {}).get(
            "cssVisualViewport"
        )
        if view is None:
            return
        moved = max(abs(view["pageX"] - event.scroll_x), abs(view["pageY"] - event.scroll_y))
        if moved > SCROLL_PIXELS:
            self._is_refused = True
            raise BrowserToolFailed(_MOVED)

    async def _continue_drag(self, event: MouseInput) -> None:
        if not self._is_drag_inside:
            self._is_drag_inside = True
            await self._drag_event("dragEnter", event.x, event.y, event.modifiers)
        # A drop takes place only where the page was asked before.
        await self._drag_event("dragOver", event.x, event.y, event.modifiers)
        if event.action == "up" and event.button == "left":
            await self._drag_event("drop", event.x, event.y, event.modifiers)
            self._drag, self._held_buttons = None, 0

    async def _drag_event(self, kind: str, x: float, y: float, modifiers: int) -> None:
        params: JSON = {"type": kind, "x": x, "y": y, "data": self._drag, "modifiers": modifiers}
        await self._send("Input.dispatchDragEvent", params)

    async def touch(self, event: TouchInput) -> None:
        points: list[JSON] = [
            {"id": point.id, "x": point.x, "y": point.y} for point in event.points
        ]
        if event.action == "start":
            await self._require_place(event)
        elif self._is_refused and not self._has_touch:
            return
        # The browser ends the touches that are missing in a move; the end itself takes no points.
        kind = "move" if event.action == "end" and points else event.action
        self._has_touch = bool(points)
        params: JSON = {
            "type": f"touch{kind.capitalize()}",
            "touchPoints": [] if kind in ("end", "cancel") else points,
            "modifiers": event.modifiers,
        }
        await self._send("Input.dispatchTouchEvent", params)

    async def key(self, event: KeyInput) -> None:
        name = event.code or event.key
        if event.action == "up":
            self._held_keys.pop(name, None)
        else:
            self._held_keys[name] = event
        if self._drag is not None and event.key == "Escape" and event.action == "down":
            await self._drag_event("dragCancel", *self._position, event.modifiers)
            self._drag, self._held_buttons = None, 0
            return
        text = text_of_key(event) if event.action == "down" else ""
        params: JSON = {
            "type": "keyUp" if event.action == "up" else "keyDown" if text else "rawKeyDown",
            "key": event.key,
            "code": event.code,
            "modifiers": modifiers_of(event),
            "windowsVirtualKeyCode": key_code_of(event),
            "location": event.location,
            "isKeypad": event.location == 3,
            "autoRepeat": event.repeat,
            "text": text,
            "unmodifiedText": text,
        }
        clipboard = self._session.clipboard
        if clipboard is None or event.action == "up" or not uses_clipboard(shortcut_of(event)):
            await self._send("Input.dispatchKeyEvent", params)
            return
        with anyio.move_on_after(EVENT_SECONDS):
            async with clipboard.turn():
                await self._send("Input.dispatchKeyEvent", params)

    async def text(self, event: TextInput) -> None:
        await self._send("Input.insertText", {"text": event.text})

    async def compose(self, event: CompositionInput) -> None:
        selection: JSON = {"selectionStart": event.start, "selectionEnd": event.end}
        await self._send("Input.imeSetComposition", {"text": event.text, **selection})

    async def _send(self, method: str, params: JSON) -> JSON | None:
        """Send a command, and wait until the page has handled it or asks something. Return its result if it has one by then.

        Raises:
            BrowserToolFailed: The dialog of another tab blocks the page.
            playwright's Error: The page is gone.
        """
        assert self._devtools is not None
        send = partial(send_command, self._devtools, method, params)
        with anyio.move_on_after(EVENT_SECONDS):
            return await self._session.run_until_modal(self.tab, send)
        return None
