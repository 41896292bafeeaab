"""The fields whose choices a browser draws outside the picture: lists of `<select>`, calendars, clocks and colours."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from pydantic import ValidationError

from ..errors import BrowserToolFailed
from .events import (
    LONGEST_LABEL,
    MAX_OPTIONS,
    AnyInput,
    ChoiceField,
    FieldInput,
    KeyInput,
    MouseInput,
    TouchInput,
)
from .keyboard import ALT

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle

    from ..session.session import BrowserSession
    from ..session.tab import Tab
    from .points import Point

SECONDS: Final = 1.0
"""Seconds that a page gets to say what stands at a place."""
_KINDS: Final = "date|datetime-local|month|week|time|color"
_IS_CHOICE: Final = f"""element => !element.matches(":disabled") && (element.matches("select")
  ? !element.multiple && element.size <= 1 && getComputedStyle(element).appearance !== "base-select"
  : element.matches("input") && !element.readOnly && /^({_KINDS})$/.test(element.type))"""
"""A list with `appearance: base-select`, or with several lines, is in the picture."""
_DESCRIBE: Final = f"""(element, events) => {{
  if (!({_IS_CHOICE})(element)) return null;
  // The browser draws nothing of its own for this press.
  const view = element.ownerDocument.defaultView;
  const stop = event => {{
    if (!event.composedPath().includes(element)) return;
    event.preventDefault();
    if (event.type === "mousedown") element.focus();
    if (event.type === "keydown") view.removeEventListener("keydown", stop, true);
  }};
  for (const type of events) view.addEventListener(type, stop, true);
  setTimeout(() => events.forEach(type => view.removeEventListener(type, stop, true)), 1000);
  const cut = text => String(text ?? "").slice(0, {LONGEST_LABEL});
  const isList = element.matches("select");
  const options = isList ? [...element.options].slice(0, {MAX_OPTIONS}).map((option, index) => ({{
    index, text: cut(option.label || option.text), group: cut(option.parentElement.label),
    disabled: option.matches(":disabled"), hidden: option.hidden }})).filter(option => !option.hidden) : [];
  const {{ width, height }} = element.getBoundingClientRect();
  return {{ kind: isList ? "select" : element.type, width, height, options,
    label: cut(element.ariaLabel || element.labels?.[0]?.textContent.trim()),
    index: isList ? element.selectedIndex : null, value: isList ? "" : cut(element.value),
    min: cut(element.min), max: cut(element.max), step: cut(element.step) }};
}}"""
_SET: Final = """(element, [index, value]) => {
  if (!element.isConnected) return false;
  const view = element.ownerDocument.defaultView;
  const [type, name, wanted] = index === null
    ? [view.HTMLInputElement, "value", value] : [view.HTMLSelectElement, "selectedIndex", index];
  element.focus({ preventScroll: true });
  if (element[name] === wanted) return true;
  // Libraries replace the property of the element itself, to know who changed it.
  Object.getOwnPropertyDescriptor(type.prototype, name).set.call(element, wanted);
  for (const kind of ["input", "change"]) {
    element.dispatchEvent(new view.Event(kind, { bubbles: true, composed: kind === "input" }));
  }
  return true;
}"""


class ChoiceFields:
    """The field that a person opened last. It lives as long as the control of the person."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._opened: tuple[Tab, ElementHandle] | None = None
        self._touch: Point | None = None
        """The place of a finger that has not moved."""

    async def open(self, tab: Tab, event: AnyInput) -> ChoiceField | None:
        """Return the field that an event is about to open, and keep the browser from drawing its choices; else None."""
        is_opener, point = self._opener(event)
        if not is_opener or tab.modal_text is not None:
            return None
        events = ["keydown", "click"] if point is None else ["mousedown", "click"]
        with anyio.move_on_after(SECONDS), suppress(Exception):
            return await self._describe(tab, point, events)
        return None

    def _opener(self, event: AnyInput) -> tuple[bool, Point | None]:
        """Return whether an event may open a field, and the place of the field unless it has the focus."""
        if isinstance(event, MouseInput):
            return event.action == "down" and event.button == "left", (event.x, event.y)
        if isinstance(event, TouchInput):
            if event.action == "end":
                point, self._touch = self._touch, None
                return point is not None, point
            is_start = event.action == "start" and len(event.points) == 1
            self._touch = (event.points[0].x, event.points[0].y) if is_start else None
        if isinstance(event, KeyInput) and event.action == "down":
            is_arrow = event.key in ("ArrowDown", "ArrowUp") and event.modifiers == ALT
            is_key = event.key in (" ", "Enter", "F4") and not event.modifiers
            return is_arrow or is_key, None
        return False, None

    async def _describe(
        self, tab: Tab, point: Point | None, events: Sequence[str]
    ) -> ChoiceField | None:
        from .points import element_at

        element, left, top = await element_at(tab.page, point, _IS_CHOICE)
        if element is None:
            return None
        found: dict[str, Any] | None = await element.evaluate(_DESCRIBE, events)
        # Enter in a date sends its form.
        if found is None or (events[0] == "keydown" and found["kind"] not in ("select", "color")):
            return None
        with suppress(ValidationError):
            field = ChoiceField.model_validate({**found, "x": left, "y": top})
            self._opened = tab, element
            return field
        return None

    async def choose(self, event: FieldInput) -> None:
        """Give the field what the person chose, with the events of a browser.

        Raises:
            BrowserToolFailed: It is gone.
            playwright's Error: Its page is gone.
        """
        if self._opened is None:
            raise BrowserToolFailed("No field is open.")
        tab, element = self._opened
        choose = partial(element.evaluate, _SET, [event.index, event.value])
        with anyio.move_on_after(SECONDS):
            if await self._session.run_until_modal(tab, choose) is False:
                raise BrowserToolFailed("The field is gone.")
