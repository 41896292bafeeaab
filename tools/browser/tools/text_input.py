"""Text that a call puts into a field, with the values of named secrets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..call import BrowserCall
from ..errors import BrowserToolFailed
from ..secrets.session_secrets import IS_SECRET
from ..secrets.snapshot_line import refs_of_field

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator

    from ..session.tab import Tab

_FILL: Final = (Path(__file__).parents[1] / "secrets" / "fill.js").read_text("utf-8")
"""A function of JavaScript that puts a text into a field of its document. It returns why it did not, or an empty text."""

_TO_END: Final = """e => {
  e.focus();
  if (e.getRootNode().activeElement === e) getSelection().modify("move", "forward", "documentboundary");
}"""
"""Moves the caret to the end of a field; a number field has no selection range."""

_WAY_TO_FIELD: Final = """element => {
  const own = element.matches("input, textarea, select") || element.isContentEditable;
  let field = own ? element : element.closest("label")?.control ?? element;
  while (field.isContentEditable && field.parentElement?.isContentEditable) field = field.parentElement;
  if (field === element) return null;
  let top = element;
  while (top.parentElement) top = top.parentElement;
  return [top, ...top.getElementsByTagName("*")].indexOf(field) + 1;
}"""
"""Returns the number of the field that shows text for an element: the control of a label, or the whole of an editor.

It is counted from the top of the tree; 0 if the field is not in it, and null if it is the element itself.
"""


async def put_text(call: BrowserCall, locator: Locator, text: str, *, slowly: bool = False) -> bool:
    """Put a text into a field in place of what it holds, or with `slowly` type it after that. Return whether keys were used.

    Keys and texts of the keyboard go to the element that has the focus then, and a frame of another site may take it. So a
    secret is put in by a script, into the document that was checked.

    Raises:
        BrowserToolFailed: A named secret is not for the site of the field's frame, or cannot be hidden now.
    """
    named = call.session.secrets.named
    if named.may_be_in(text):
        # An element belongs to one document: a frame that navigates meanwhile gets nothing.
        field = await locator.element_handle(timeout=call.timeout)
        frame = await field.owner_frame()
        value = named.insert(text, "" if frame is None else frame.url, is_typed=True)
        is_secret = not named.consists_of_names(text) and await field.evaluate(IS_SECRET)
        call.record_typed(text, is_secret=is_secret)
        if value != text:
            await _put_named(call, locator, field, text, value, is_appended=slowly)
            return False
    else:
        is_secret = await locator.evaluate(IS_SECRET, timeout=call.timeout)
        call.record_typed(text, is_secret=is_secret)
    if slowly:
        await locator.evaluate(_TO_END, timeout=call.timeout)
        # The limit grows with the length.
        await locator.press_sequentially(text, timeout=call.timeout + len(text) * 20)
        return True
    tab = await call.tab()
    hidden_refs = await _refs_of_field(call, tab, locator) if tab.secret_fields else []
    if is_secret and text:
        field = await locator.element_handle(timeout=call.timeout)
        await _put(call, field, text)
    else:
        await locator.fill(text, timeout=call.timeout)
    _show_again(tab, hidden_refs)
    return not (is_secret and text)


async def _put_named(
    call: BrowserCall,
    locator: Locator,
    field: ElementHandle,
    text: str,
    value: str,
    *,
    is_appended: bool,
) -> None:
    weak_names = call.session.secrets.named.weak_names(text)
    if weak_names and call.session.trace.pause_hold.is_active:
        raise BrowserToolFailed(
            f"{' and '.join(weak_names)} would be in a trace, and is too easy to guess to be hidden there; end it "
            "first. Nothing was put in."
        )
    await _wait_until_editable(call, field)
    tab = await call.tab()
    # The form may submit itself as soon as it has the value: afterwards there is no field to ask.
    refs = await _refs_of_field(call, tab, locator) if weak_names or tab.secret_fields else []
    if not weak_names:
        await _put(call, field, value, is_appended=is_appended)
        if not is_appended:
            _show_again(tab, refs)
        return
    if not refs:
        raise BrowserToolFailed(
            f"{' and '.join(weak_names)} is too easy to guess to be hidden in this field: it has no ref in the snapshot, "
            "or its text is its name. Nothing was put in."
        )
    new_refs = [ref for ref in refs if ref not in tab.secret_fields]
    # Before it is put in: a new document then forgets it.
    tab.secret_fields |= dict.fromkeys(refs, text)
    try:
        await _put(call, field, value, is_appended=is_appended)
    except BrowserToolFailed:
        _show_again(tab, new_refs)
        raise


async def _put(
    call: BrowserCall, field: ElementHandle, value: str, *, is_appended: bool = False
) -> None:
    await _wait_until_editable(call, field)
    if problem := await field.evaluate(_FILL, [value, is_appended]):
        raise BrowserToolFailed(f"The field {problem}.")


async def _wait_until_editable(call: BrowserCall, field: ElementHandle) -> None:
    await field.wait_for_element_state("visible", timeout=call.timeout)
    await field.wait_for_element_state("editable", timeout=call.timeout)


async def _refs_of_field(call: BrowserCall, tab: Tab, locator: Locator) -> list[str]:
    """Return the refs of the field that shows text for an element, and of the elements in it."""
    number = await locator.evaluate(_WAY_TO_FIELD, timeout=call.timeout)
    if number == 0:
        return []
    if number is not None:
        locator = locator.locator(
            f"xpath=(ancestor-or-self::*[last()]/descendant-or-self::*)[{number}]"
        )
    return refs_of_field(await call.snapshot_of(tab, locator))


async def hidden_text(call: BrowserCall, locator: Locator) -> str:
    """Return the text that snapshots show in place of the value of a field; "" if they show the value."""
    fields = (await call.tab()).secret_fields
    refs = await _refs_of_field(call, await call.tab(), locator) if fields else []
    return next((fields[ref] for ref in refs if ref in fields), "")


def _show_again(tab: Tab, refs: Iterable[str]) -> None:
    """Show the values of fields which got a text that is not hidden there."""
    for ref in refs:
        tab.secret_fields.pop(ref, None)
