"""Text that a call puts into a field, with the values of named secrets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from .answers.page_snapshot import ref_in
from .call import Call
from .secrets.session import IS_SECRET
from .session.failures import ToolFailed

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator

_FILL: Final = (Path(__file__).parent / "secrets" / "fill.js").read_text("utf-8")
"""A function of JavaScript that puts a text into a field of its document. It returns why it did not, or an empty text."""

_TO_END: Final = """e => {
  e.focus();
  if (e.getRootNode().activeElement === e) getSelection().modify("move", "forward", "documentboundary");
}"""
"""Moves the caret to the end of a field; a number field has no selection range."""


async def put_text(call: Call, locator: Locator, text: str, *, slowly: bool = False) -> bool:
    """Put a text into a field in place of what it holds, or with `slowly` type it after that. Return whether keys were used.

    Keys and texts of the keyboard go to the element that has the focus then, and a frame of another site may take it. So a
    secret is put in by a script, into the document that was checked.

    Raises:
        ToolFailed: A named secret is not for the site of the field's frame, or cannot be hidden now.
    """
    named = call.session.secrets.named
    if named.may_be_in(text):
        # An element belongs to one document: a frame that navigates meanwhile gets nothing.
        field = await locator.element_handle(timeout=call.timeout)
        frame = await field.owner_frame()
        value = named.insert(text, "" if frame is None else frame.url, is_typed=True)
        is_secret = not named.consists_of_names(text) and await field.evaluate(IS_SECRET)
        call.note_typed(text, is_secret=is_secret)
        if value != text:
            await _put_named(call, locator, field, text, value, is_appended=slowly)
            return False
    else:
        is_secret = await locator.evaluate(IS_SECRET, timeout=call.timeout)
        call.note_typed(text, is_secret=is_secret)
    await _forget_field(call, locator)
    if slowly:
        await locator.evaluate(_TO_END, timeout=call.timeout)
        # The limit grows with the length.
        await locator.press_sequentially(text, timeout=call.timeout + len(text) * 20)
    elif is_secret and text:
        field = await locator.element_handle(timeout=call.timeout)
        await _put(call, field, text, is_appended=False)
        return False
    else:
        await locator.fill(text, timeout=call.timeout)
    return True


async def _put_named(
    call: Call,
    locator: Locator,
    field: ElementHandle,
    text: str,
    value: str,
    *,
    is_appended: bool,
) -> None:
    weak_names = call.session.secrets.named.weak_names(text)
    activities = [hold for hold in ("a trace", "a recording") if hold in call.session.holds]
    if weak_names and activities:
        raise ToolFailed(
            f"{' and '.join(weak_names)} would be in {activities[0]}, and is too easy to guess to be hidden there; end it "
            "first. Nothing was put in."
        )
    await _put(call, field, value, is_appended=is_appended)
    if weak_names:
        tab = await call.tab()
        ref = ref_in(await call.snapshot_of(tab, locator))
        if ref is not None:
            tab.secret_fields[ref] = text
    else:
        await _forget_field(call, locator)


async def _put(call: Call, field: ElementHandle, value: str, *, is_appended: bool) -> None:
    await field.wait_for_element_state("visible", timeout=call.timeout)
    await field.wait_for_element_state("editable", timeout=call.timeout)
    if problem := await field.evaluate(_FILL, [value, is_appended]):
        raise ToolFailed(f"The field {problem}.")


async def _forget_field(call: Call, locator: Locator) -> None:
    """Show the value of a field again, which now gets a text that is not hidden there."""
    tab = await call.tab()
    if tab.secret_fields and (ref := ref_in(await call.snapshot_of(tab, locator))) is not None:
        tab.secret_fields.pop(ref, None)


__all__ = ["put_text"]
