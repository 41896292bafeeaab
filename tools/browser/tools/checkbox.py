"""Checkboxes, radio buttons and file inputs that a page hides and draws anew: they are used by their label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import BrowserToolFailed

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
