"""Input into fields: text, options, whole forms, and single keys."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import anyio
from pydantic import Field

from .. import errors
from ..answers.naming import role_of
from ..call import BrowserCall
from ..errors import BrowserToolFailed, describe_error
from ..session.clipboard import uses_clipboard
from ..tool import BrowserArguments, BrowserTool, Element, Target, tool
from .text_input import put_text

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator, Position

ROLES: Final = frozenset({"checkbox", "radio", "switch"})

_LABEL: Final = """input => {
  if (!['checkbox', 'file', 'radio'].includes(input.type) || input.disabled) return [];
  input.scrollIntoViewIfNeeded?.();
  const at = (x, y) => input.getRootNode().elementFromPoint(x, y);
  const box = input.getBoundingClientRect();
  const hit = box.width > 1 && at(box.x + box.width / 2, box.y + box.height / 2);
  if (hit === input) return [];
  const isFree = (label, hit) => label.contains(hit) &&
    !hit.closest('a, button, select, textarea, input:not([type=checkbox], [type=file], [type=radio])');
  for (const label of input.labels ?? []) {
    label.scrollIntoViewIfNeeded?.();
    const frame = label.getBoundingClientRect();
    for (const part of [...label.getClientRects(), ...[...label.children].map(e => e.getBoundingClientRect())])
      for (const share of [0.1, 0.5, 0.9]) {
        const x = part.x + part.width * share, y = part.y + part.height / 2;
        if (part.width && part.height && isFree(label, at(x, y)))
          return [label, x - frame.x - label.clientLeft, y - frame.y - label.clientTop];
      }
  }
  return [];
}"""
"""Returns [label, x, y] for such an input that cannot be clicked, with a point of the label that is no link; else []."""


class Label(NamedTuple):
    """The label of a hidden input, and the point in it to click on."""

    element: ElementHandle
    position: Position


async def label_of(locator: Locator, timeout: float) -> Label | None:
    """Return the label to click on in place of an input, or None if the element is none of these, or can be clicked."""
    found = await locator.evaluate_handle(_LABEL, timeout=timeout)
    element = (await found.get_property("0")).as_element()
    if element is None:
        return None
    x, y = [await (await found.get_property(name)).json_value() for name in "12"]
    return Label(element, {"x": x, "y": y})


async def set_checked(locator: Locator, is_checked: bool, timeout: float) -> None:
    """Tick a checkbox or radio button, or take its tick away; by its label if it is hidden.

    Raises:
        BrowserToolFailed: A click on the label did not do it.
    """
    options: Any = {"timeout": timeout}
    label = await label_of(locator, timeout)
    if label is None:
        await locator.set_checked(is_checked, **options)
        return
    if await locator.is_checked(**options) == is_checked:
        return
    await label.element.click(position=label.position, **options)
    if await locator.is_checked(**options) != is_checked:
        raise BrowserToolFailed("A click on its label did not change it.")


MAX_OPTIONS_SHOWN = 30
IN_ONE_STEP: Final = (
    "The text has a secret and was put in at once: other sites could take its keys."
)

SCROLLING: Final = frozenset({"End", "Home", "PageDown", "PageUp", "Space"})
SCROLLED: Final = """() => new Promise(done => {
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
  setTimeout(done, 100);
})"""
"""Resolves when a page has drawn the position that a key scrolled to; only then does it load more content."""

_REFUSAL: Final = 'The specified value "'
"""The beginning of the browser's warning about a text that is no date, time, number or color; it then clears the field."""

_WAS_REFUSED: Final = "(e, text) => e.type === 'color' ? !CSS.supports('color', text) : !e.value"
"""Returns whether a text was refused. The browser warns of every color that is not six digits, and takes it all the same."""

_RANGE: Final = """(found, text) => {
  const [e] = [found].flat(), field = e?.control ?? e, number = text.trim() !== '' && isFinite(text);
  if (field?.type !== 'range' || number && Number(text) === Number(field.value)) return null;
  return [field.value, number, field.min || '0', field.max || '100'];
}"""
"""Returns [value, whether the text is a number, least, most] if a slider's value differs from the text, else null."""

_SINGLE = "e => e.closest('select')?.multiple === false"

_OPTIONS = "e => { const s = e.closest('select'); return s && [...s.options].map(o => o.label); }"


class Type(BrowserArguments):
    target: Target
    text: str
    element: Element = None
    submit: Annotated[bool | None, Field(description="Press Enter afterwards")] = None
    slowly: Annotated[
        bool | None, Field(description="Key by key, for pages that listen to keys; secrets at once")
    ] = None


@tool("browser_type", title="Type text", secret=["text"])
async def type_text(call: BrowserCall, arguments: Type) -> None:
    """Put a text into a field in place of what it holds; with slowly, type it after that."""
    locator = await call.locate(arguments.target, arguments.element)
    code = call.element_code
    if arguments.slowly:
        uses_keys = True

        async def press() -> None:
            nonlocal uses_keys
            uses_keys = await put_text(call, locator, arguments.text, slowly=True)

        await call.act(press)
        method = "press_sequentially" if uses_keys else "fill"
        call.answer.code(f"await {code}.{method}({call.mask_secret(arguments.text)!r})")
        if not uses_keys:
            (await call.tab()).event_lines.append(IN_ONE_STEP)
        await _check_range(call, locator, arguments.target, arguments.text)
    else:
        await _fill_text(call, locator, arguments.target, arguments.text)
        call.answer.code(f"await {code}.fill({call.mask_secret(arguments.text)!r})")
    if arguments.submit and not await _is_dialog_open(call, "Enter was not pressed"):
        call.answer.code(f"await {code}.press('Enter')")
        await call.act(lambda: locator.press("Enter", timeout=call.timeout))


async def _is_dialog_open(call: BrowserCall, omission: str) -> bool:
    """Return whether a dialog is open; if so, add an event that says which action was not done."""
    tab = await call.tab()
    if tab.modal_text is None:
        return False
    tab.event_lines.append(f"{omission}, because the page asks something first.")
    return True


async def _fill_text(
    call: BrowserCall, locator: Locator, target: str, text: str, *, name: str = "The field"
) -> None:
    """Put a text into a field. If a slider changed the value, add an event.

    Raises:
        BrowserToolFailed: The field does not accept the text.
    """
    tab = await call.tab()
    last = tab.console[-1] if tab.console else None

    uses_keys = True

    async def fill() -> None:
        nonlocal uses_keys
        uses_keys = await put_text(call, locator, text)

    await call.act(fill, snapshot=False)
    # Look for the warning first: a query to every field would cost one more message.
    value = text.strip() if uses_keys else ""
    for line in takewhile(lambda line: line is not last, reversed(list(tab.console))):
        is_warning = value and line.text.startswith(f"{_REFUSAL}{value[:100]}")
        if is_warning and await locator.evaluate(_WAS_REFUSED, value, timeout=call.timeout):
            raise BrowserToolFailed(f"The field did not take it: {line.text}")
    await _check_range(call, locator, target, text, name=name)


async def _check_range(
    call: BrowserCall, locator: Locator, target: str, text: str, *, name: str = "The field"
) -> None:
    """Add an event if the value of a slider differs from the text.

    Raises:
        BrowserToolFailed: The field is a slider, and the text is no number.
    """
    tab = await call.tab()
    # The last snapshot contains the role of a ref, which saves a query.
    role = role_of(tab.last_snapshot or "", target)
    if tab.modal_text is not None or role not in (None, "slider"):
        return
    slider: list[Any] | None = None
    # The page may have changed. evaluate() would wait for a missing element, so a selector uses evaluate_all().
    with suppress(errors.Error), anyio.move_on_after(call.config.action_seconds):
        ask = locator.evaluate if role else locator.evaluate_all
        slider = await ask(_RANGE, text)
    if slider is None:
        return
    value, is_number, least, most = slider
    if not is_number:
        raise BrowserToolFailed(
            f"The field takes a number from {least} to {most}, not {text!r}; it is at {value} now."
        )
    tab.event_lines.append(f"{name} made {value} of {text}.")


class PressKey(BrowserArguments):
    key: Annotated[str, Field(description="Such as Enter, ArrowLeft, a, Control+a")]


@tool("browser_press_key", title="Press a key", limit="script")
async def press_key(call: BrowserCall, arguments: PressKey) -> None:
    """Press a key, or keys together, where the focus is."""
    tab = await call.tab()
    # Enter submits forms and follows links; other keys seldom change the page.
    entering = arguments.key in ("Enter", "NumpadEnter")
    keyboard = tab.page.keyboard

    clipboard = call.session.clipboard if uses_clipboard(arguments.key) else None

    async def press() -> None:
        async with clipboard.turn() if clipboard is not None else nullcontext():
            try:
                await keyboard.press(arguments.key)
            except errors.Error as error:
                # Playwright presses the modifiers before it looks up the last key: release them.
                for modifier in arguments.key.split("+")[:-1]:
                    with suppress(errors.Error):
                        await keyboard.up(modifier)
                if "Unknown key" not in error.message:
                    raise
                raise BrowserToolFailed(
                    f"{describe_error(error)}. Keys are named such as Enter, ArrowLeft, a or Control+a; for text there is "
                    "browser_type."
                ) from None
        if arguments.key.rpartition("+")[2] in SCROLLING:
            # The key may also have made the page navigate.
            with suppress(errors.Error):
                await tab.page.evaluate(SCROLLED)

    await call.act(press, snapshot=entering)
    call.answer.code(f"await page.keyboard.press({arguments.key!r})")


class SelectOption(BrowserArguments):
    target: Target
    values: Annotated[list[str], Field(description="Values or labels; several where it allows")]
    element: Element = None


@tool("browser_select_option", title="Select option")
async def select_option(call: BrowserCall, arguments: SelectOption) -> None:
    """Choose options of a dropdown or list, in place of those that are chosen."""
    locator = await call.locate(arguments.target, arguments.element)
    await _select_options(call, locator, arguments.values)
    option = arguments.values[0] if len(arguments.values) == 1 else arguments.values
    call.answer.code(f"await {call.element_code}.select_option({option!r})")


async def _select_options(
    call: BrowserCall, locator: Locator, values: list[str], *, snapshot: bool = True
) -> None:
    if len(values) > 1 and await locator.evaluate(_SINGLE, timeout=call.timeout):
        raise BrowserToolFailed(f"It takes one option only, not {values!r}.")
    try:
        await call.act(
            lambda: locator.select_option(values, timeout=call.timeout), snapshot=snapshot
        )
    except errors.Error as error:
        select = locator.locator("xpath=ancestor::select")
        if "resolved to <option" in str(error) and await select.count() == 1:
            call.element_code = f"page.{await select.normalize()}"
            await _select_options(call, select, values, snapshot=snapshot)
            return
        if "not a <select> element" in str(error):
            raise BrowserToolFailed(
                "It is no <select> element; click on it, and then on the option that it shows."
            ) from None
        if "option being selected is not enabled" in str(error):
            raise BrowserToolFailed(
                f"Not all of {values!r} can be chosen: one is disabled."
            ) from None
        if "did not find some options" not in str(error):
            raise
        labels: list[str] = await locator.evaluate(_OPTIONS, timeout=call.timeout) or []
        more = (
            f" and {len(labels) - MAX_OPTIONS_SHOWN} more"
            if len(labels) > MAX_OPTIONS_SHOWN
            else ""
        )
        choices = ", ".join(map(repr, labels[:MAX_OPTIONS_SHOWN])) or "none"
        raise BrowserToolFailed(
            f"Not all of {values!r} are options; there are: {choices}{more}."
        ) from None


class FormField(BrowserArguments):
    target: Target
    name: Annotated[str, Field(description="The field in words")]
    type: Literal["textbox", "checkbox", "radio", "combobox", "slider"]
    value: Annotated[
        str, Field(description="The text; true or false of a checkbox; the option of a combobox")
    ]
    element: Element = None


class FillForm(BrowserArguments):
    fields: Annotated[list[FormField], Field(min_length=1)]


@tool("browser_fill_form", title="Fill form", limit="wait", secret=["value"])
async def fill_form(call: BrowserCall, arguments: FillForm) -> None:
    """Fill in several fields of a form, in order. It stops at the first that cannot be, and says which were."""
    for number, field in enumerate(arguments.fields):
        try:
            await _fill_form_field(call, field)
        except (errors.Error, BrowserToolFailed) as error:
            call.shows_snapshot = True
            filled = ", ".join(field.name for field in arguments.fields[:number])
            raise BrowserToolFailed(
                f"{field.name}: {describe_error(error).rstrip('.')}. Filled in before it: {filled or 'nothing'}."
            ) from None
        remaining = ", ".join(field.name for field in arguments.fields[number + 1 :])
        if remaining and await _is_dialog_open(call, f"Not filled in: {remaining}"):
            break


async def _fill_form_field(call: BrowserCall, field: FormField) -> None:
    locator = await call.locate(field.target, field.element or field.name)
    code, value = call.element_code, field.value
    if field.type in ("checkbox", "radio"):
        if value not in ("true", "false"):
            raise BrowserToolFailed("Its value has to be true or false.")
        is_checked = value == "true"
        if not is_checked and field.type == "radio":
            raise BrowserToolFailed("A radio button goes out only when another one is chosen.")
        await call.act(lambda: set_checked(locator, is_checked, call.timeout), snapshot=False)
        call.record_typed(value, is_secret=False)
        call.answer.code(f"await {code}.{'check' if is_checked else 'uncheck'}()")
    elif (
        field.type == "combobox"
        and await locator.evaluate(_OPTIONS, timeout=call.timeout) is not None
    ):
        await _select_options(call, locator, [value], snapshot=False)
        # The page shows its options to everybody.
        call.record_typed(value, is_secret=False)
        call.answer.code(f"await {call.element_code}.select_option({value!r})")
    else:
        await _fill_text(call, locator, field.target, value, name=f"{field.name}: the field")
        call.answer.code(f"await {code}.fill({call.mask_secret(value)!r})")


TOOLS: list[BrowserTool] = [type_text, press_key, select_option, fill_form]
