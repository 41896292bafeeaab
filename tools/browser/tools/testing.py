"""Checks of a page, and locators for its elements as a test would write them."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field

from .. import errors
from ..call import BrowserCall
from ..errors import BrowserToolFailed, describe_error
from ..session.locator import find_element
from ..tool import BrowserArguments, BrowserTool, Element, Target, tool
from .text_input import hidden_text

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator, Page

_VALUE = """element => {
  const name = ['aria-valuetext', 'aria-valuenow'].find(each => element.hasAttribute(each));
  if (name) return [name, element.getAttribute(name)];
  const roles = ['combobox', 'searchbox', 'spinbutton', 'textbox'];
  const holds = element.isContentEditable || roles.includes(element.getAttribute('role'));
  return holds ? ['', element.textContent.trim()] : null;
}"""
"""Returns [attribute, value] of an element that is not an HTML input, or null; the attribute is '' for its text."""

_CHOSEN_LABELS = "e => e.tagName === 'SELECT' ? [...e.selectedOptions].map(o => o.label) : []"


class GenerateLocator(BrowserArguments):
    target: Target
    element: Element = None


@tool("browser_generate_locator", title="Create locator for element", cap="testing", read_only=True)
async def generate_locator(call: BrowserCall, arguments: GenerateLocator) -> None:
    """Return the Playwright locator that a test would use for an element."""
    locator = await call.locate(arguments.target, arguments.element)
    try:
        code = str(await locator.normalize())
    except errors.Error as error:
        raise BrowserToolFailed(f"There is no locator for it: {describe_error(error)}") from None
    call.answer.result(call.answer.translated(code).removesuffix(";"))


class VerifyElement(BrowserArguments):
    role: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z]+$", description='As in the snapshot: `- button "Send"` has button'
        ),
    ]
    accessible_name: Annotated[
        str,
        Field(alias="accessibleName", description='As in the snapshot: `- button "Send"` has Send'),
    ]


@tool(
    "browser_verify_element_visible", title="Verify element visible", cap="testing", read_only=True
)
async def verify_element_visible(call: BrowserCall, arguments: VerifyElement) -> None:
    """Check that an element of a role and a name can be seen, in the page or in a frame of it.

    Use the browser_verify tools for the checks of a test; to learn what a page shows, use browser_snapshot.
    """
    page = (await call.ready_tab()).page
    role, name = arguments.role.lower(), _with_secrets(call, page, arguments.accessible_name)
    code = f"page.get_by_role({role!r}, name={name!r})"
    what = f'Element with role "{role}" and accessible name "{name}"'

    def locate(frame: Frame, *, include_hidden: bool = False) -> Locator:
        return frame.get_by_role(cast("Any", role), name=name, include_hidden=include_hidden)

    # An element without a size of its own counts too: its content may be seen.
    locator = await find_element(page, locate, code) or await find_element(
        page, locate, code, visible=False
    )
    if locator is None:
        hidden = partial(locate, include_hidden=True)
        is_there = await find_element(page, hidden, code, visible=False)
        raise BrowserToolFailed(
            f"{what} is there, but not visible" if is_there else f"{what} not found"
        )
    _confirm_visible(call, locator)


class VerifyText(BrowserArguments):
    text: Annotated[str, Field(description="A part of it is enough; case does not matter")]


@tool("browser_verify_text_visible", title="Verify text visible", cap="testing", read_only=True)
async def verify_text_visible(call: BrowserCall, arguments: VerifyText) -> None:
    """Check that a text can be seen, in the page or in a frame of it."""
    page = (await call.ready_tab()).page
    text = _with_secrets(call, page, arguments.text)
    code = f"page.get_by_text({text!r})"
    locator = await find_element(page, lambda frame: frame.get_by_text(text), code)
    if locator is None:
        raise BrowserToolFailed("Text not found")
    _confirm_visible(call, locator)


def _with_secrets(call: BrowserCall, page: Page, text: str) -> str:
    """Return a text as the page has it: snapshots show secrets by name."""
    return call.session.secrets.named.insert(text, page.url)


def _confirm_visible(call: BrowserCall, locator: str) -> None:
    call.answer.result("Done")
    call.answer.code(f"await expect({locator}).to_be_visible()")


class VerifyList(BrowserArguments):
    element: Annotated[str, Field(description="The list in words")]
    target: Target
    items: list[str]


@tool("browser_verify_list_visible", title="Verify list visible", cap="testing", read_only=True)
async def verify_list_visible(call: BrowserCall, arguments: VerifyList) -> None:
    """Check that a list shows all of the given texts."""
    locator = await call.locate(arguments.target, arguments.element)
    code = call.element_code
    lines = ["- list:"]
    for name in arguments.items:
        item = _with_secrets(call, locator.page, name)
        matches = locator.get_by_text(item).filter(visible=True)
        if await matches.count() == 0:
            raise BrowserToolFailed(f'Item "{item}" not found')
        text = " ".join((await matches.first.inner_text(timeout=call.timeout)).split())
        lines.append(f"  - listitem: {json.dumps(text, ensure_ascii=False)}")
    call.answer.result("Done")
    call.answer.code(f"await expect({code}).to_match_aria_snapshot({chr(10).join(lines)!r})")


class VerifyValue(BrowserArguments):
    type: Literal["textbox", "checkbox", "radio", "combobox", "slider"]
    element: Annotated[str, Field(description="The element in words")]
    target: Target
    value: Annotated[str, Field(description="For a checkbox or radio, true or false")]


@tool("browser_verify_value", title="Verify value", cap="testing", read_only=True)
async def verify_value(call: BrowserCall, arguments: VerifyValue) -> None:
    """Check the value of a field: its text, its choice, or whether it is checked."""
    locator = await call.locate(arguments.target, arguments.element)
    code = f"await expect({call.element_code})"
    if hidden := await hidden_text(call, locator):
        # A comparison with a guess would tell a secret that is easy to guess.
        if arguments.value != hidden:
            raise BrowserToolFailed(f'Expected value "{arguments.value}", but got "{hidden}"')
        call.answer.result("Done")
        call.answer.code(f"{code}.to_have_value({hidden!r})")
        return
    if arguments.type in ("checkbox", "radio"):
        values = [json.dumps(await locator.is_checked(timeout=call.timeout))]
        code += ".to_be_checked()" if values == ["true"] else ".not_to_be_checked()"
    else:
        values, assertion = await _values(call, locator)
        code += assertion
    if _with_secrets(call, locator.page, arguments.value) not in values:
        found = call.session.secrets.named.mask(values[-1])
        raise BrowserToolFailed(f'Expected value "{arguments.value}", but got "{found}"')
    call.answer.result("Done")
    call.answer.code(code)


async def _values(call: BrowserCall, locator: Locator) -> tuple[list[str], str]:
    """Return the values of a field (its value, then the labels of chosen options), and the expectation of a test.

    Raises:
        BrowserToolFailed: The element is no field.
    """
    try:
        value = await locator.input_value(timeout=call.timeout)
        labels = await locator.evaluate(_CHOSEN_LABELS, timeout=call.timeout)
        return [value, *labels], f".to_have_value({value!r})"
    except errors.TimeoutError:
        raise
    except errors.Error:
        attribute_value = await locator.evaluate(_VALUE, timeout=call.timeout)
    if attribute_value is None:
        raise BrowserToolFailed(
            "It is no field, and has no value; browser_verify_text_visible is for texts."
        )
    attribute, value = attribute_value
    expected = f"attribute({attribute!r}, {value!r})" if attribute else f"text({value!r})"
    return [value], f".to_have_{expected}"


TOOLS: list[BrowserTool] = [
    generate_locator,
    verify_element_visible,
    verify_text_visible,
    verify_list_visible,
    verify_value,
]
