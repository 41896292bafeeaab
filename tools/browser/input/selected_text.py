"""The selected text of a page, the text of the field with the focus, text that a person pastes, and whether it takes any.

The clipboard of the browser is not used: all sessions of a browser share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .events import PasteInput
from .points import FILES, file_members

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

MAX_CHARACTERS: Final = 1000
"""Characters of the longest text of a field that is read whole."""
_FOCUSED: Final = """
  let focused = document.activeElement;
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
"""
_ELEMENT: Final = f"() => {{ {_FOCUSED} return focused; }}"
_SELECTED: Final = f"""() => {{ {_FOCUSED}
  if (focused?.matches?.("textarea, input")) {{
    if (focused.type === "password") return "";
    return focused.value.slice(focused.selectionStart ?? 0, focused.selectionEnd ?? 0);
  }}
  return String(getSelection());
}}"""
_EDITED: Final = f"""() => {{ {_FOCUSED}
  if (focused?.matches?.("textarea, input")) return focused.value.slice(0, {MAX_CHARACTERS} + 1);
  return focused?.isContentEditable ? focused.innerText.slice(0, {MAX_CHARACTERS} + 1) : "";
}}"""
_PASTE: Final = f"""([text, files]) => {{ {_FOCUSED} {FILES}
  if (text) transfer.setData("text/plain", text);
  const options = {{clipboardData: transfer, bubbles: true, cancelable: true, composed: true}};
  return (focused ?? document).dispatchEvent(new ClipboardEvent("paste", options));
}}"""
"""Returns whether the paste is still to be done."""
_TAKES_TEXT: Final = f"""async () => {{
  // The browser makes a click of a tap after the page has seen its end.
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  {_FOCUSED}
  if (focused?.matches?.("input")) {{
    return !/^(button|checkbox|color|file|hidden|image|radio|range|reset|submit)$/.test(focused.type) && !focused.readOnly;
  }}
  return Boolean(focused?.matches?.("textarea:read-write") || focused?.isContentEditable);
}}"""


async def selected_text(page: Page) -> str:
    """Return the selected text of the frame that has the focus; "" for a password field.

    Raises:
        playwright's Error: The page is gone, or navigates.
    """
    return str(await (await _focused_frame(page)).evaluate(_SELECTED))


async def edited_text(page: Page) -> str:
    """Return the text of the field that has the focus; "" without one.

    Raises:
        playwright's Error: The page is gone, or navigates.
    """
    return str(await (await _focused_frame(page)).evaluate(_EDITED))


async def send_paste_event(page: Page, event: PasteInput) -> bool:
    """Let the page handle a paste, and return whether it left the insertion to the browser.

    Raises:
        playwright's Error: The page is gone, or navigates.
    """
    return bool(
        await (await _focused_frame(page)).evaluate(
            _PASTE, [event.text, file_members(event.uploads)]
        )
    )


async def takes_text(page: Page) -> bool:
    """Return whether the focus of a page, after a tap, is in a field that takes text.

    Raises:
        playwright's Error: The page is gone, or navigates.
    """
    if await page.main_frame.evaluate(_TAKES_TEXT):
        return True
    frame = await _focused_frame(page)
    return frame != page.main_frame and bool(await frame.evaluate(_TAKES_TEXT))


async def _focused_frame(page: Page) -> Frame:
    frame = page.main_frame
    while True:
        element = (await frame.evaluate_handle(_ELEMENT)).as_element()
        inner = None if element is None else await element.content_frame()
        if inner is None:
            return frame
        frame = inner
