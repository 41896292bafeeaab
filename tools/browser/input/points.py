"""The element of a page at a place of its picture, or with the focus, and the files that a person drops there."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .events import UploadedFile

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Page

Point: TypeAlias = tuple[float, float]

MAX_FRAMES: Final = 10
_FIND: Final = """
  let element = point ? document.elementFromPoint(...point) : document.activeElement;
  for (;;) {
    const root = element?.shadowRoot;
    const inner = point ? root?.elementFromPoint(...point) : root?.activeElement;
    if (!inner || inner === element) break;
    element = inner;
  }
  // A press on a label is one on its field.
  if (point) element = element?.closest("label")?.control ?? element;
"""
_ELEMENT: Final = f"point => {{ {_FIND} return element; }}"
_CORNER: Final = """element => { const { left, top } = element.getBoundingClientRect();
  return [left, top, element.clientLeft, element.clientTop]; }"""
FILES: Final = """
  const transfer = new DataTransfer();
  for (const { name, media_type, content } of files) {
    transfer.items.add(new File([Uint8Array.from(atob(content), c => c.charCodeAt(0))], name, { type: media_type }));
  }
"""
"""Part of a script: makes the DataTransfer `transfer` of `files`, as file_members() returns them."""
_DROP: Final = f"""(element, [[x, y], files]) => {{ {FILES}
  const {{ left, top }} = element.getBoundingClientRect();
  const send = (type, kind = DragEvent) => element.dispatchEvent(new kind(type, {{
    bubbles: true, cancelable: true, composed: true, clientX: left + x, clientY: top + y, dataTransfer: transfer }}));
  if (element.matches("input[type=file]:enabled") && (element.multiple || files.length === 1)) {{
    element.files = transfer.files;
    for (const type of ["input", "change"]) send(type, Event);
    return true;
  }}
  send("dragenter");
  if (!send("dragover")) {{
    send("drop");
    return true;
  }}
  send("dragleave");
  return false;
}}"""


async def element_at(
    page: Page, point: Point | None, test: str = "() => true"
) -> tuple[ElementHandle | None, float, float]:
    """Return the element at a point, or with the focus, in whichever frame, and its corner in the page.

    `test` is a function of JavaScript; an element for which it returns false is None.

    Raises:
        playwright's Error: The page is gone, or navigates.
    """
    look = f"""point => {{ {_FIND}
      return !element ? "" : element.matches("iframe, frame") ? "frame" : ({test})(element) ? "element" : "";
    }}"""
    frame, left, top = page.main_frame, 0.0, 0.0
    for _ in range(MAX_FRAMES):
        inner = None if point is None else (point[0] - left, point[1] - top)
        found = await frame.evaluate(look, inner)
        element = (await frame.evaluate_handle(_ELEMENT, inner)).as_element() if found else None
        if element is None:
            return None, left, top
        corner = await element.evaluate(_CORNER)
        next_frame = await element.content_frame() if found == "frame" else None
        if next_frame is None:
            return element, left + corner[0], top + corner[1]
        frame, left, top = next_frame, left + corner[0] + corner[2], top + corner[1] + corner[3]
    return None, left, top


async def drop_files(page: Page, point: Point, files: Sequence[UploadedFile]) -> bool:
    """Drop files on a page, and return whether it took them.

    Raises:
        playwright's Error: The page is gone, or navigates.
    """
    element, left, top = await element_at(page, point)
    if element is None:
        return False
    inside = point[0] - left, point[1] - top
    return bool(await element.evaluate(_DROP, [inside, file_members(files)]))


def file_members(files: Sequence[UploadedFile]) -> list[dict[str, Any]]:
    """Return files as a script takes them."""
    return [
        {
            "name": file.name,
            "media_type": file.media_type,
            "content": base64.b64encode(file.content).decode(),
        }
        for file in files
    ]
