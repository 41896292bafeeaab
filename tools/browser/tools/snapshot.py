"""Views of a page: its snapshot, a search in the snapshot, and a picture."""

from __future__ import annotations

import math
import struct
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from ....sessions.json_codec import well_formed
from ..call import Call
from ..process.node import matching
from ..session.failures import ToolFailed
from ..tool import BrowserArguments, BrowserTool, Element, Filename, Target, Whole, tool

if TYPE_CHECKING:
    from playwright.async_api import Page

AROUND: Final = 3
"""The number of lines shown around a match."""
LONGEST: Final = 8000
"""The longest side of a picture in pixels; models accept no larger ones."""
INLINE_BYTES: Final = 3 * 2**20
_KINDS: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}


class TakeSnapshot(BrowserArguments):
    target: Annotated[Target | None, Field(description="Only this element, by ref or selector")] = (
        None
    )
    filename: Filename = None
    depth: Annotated[Whole | None, Field(ge=0, description="How many levels; 0 for all")] = None
    boxes: Annotated[bool | None, Field(description="With the place of each element")] = None


@tool("browser_snapshot", title="Page snapshot", read_only=True)
async def snapshot(call: Call, given: TakeSnapshot) -> None:
    """Return the page as text: its roles, names and values, with a ref for each element that other tools take."""
    tab = await call.tab()
    call.shows_page = True
    locator = await call.locate(given.target) if given.target else None
    options = {"depth": given.depth or None, "boxes": given.boxes}
    wanted = {key: value for key, value in options.items() if value is not None}
    text = await call.beside_title(tab, partial(call.snapshot_of, tab, locator, **wanted))
    if given.filename is None:
        call.answer.snapshot(text)
    else:
        await call.keep(given.filename, well_formed(text).encode(), label="Snapshot")


class Find(BrowserArguments):
    text: Annotated[str | None, Field(description="A text, in upper or lower case")] = None
    regex: Annotated[
        str | None, Field(description="A regular expression of JavaScript, or /one/i with flags")
    ] = None
    filename: Filename = None


@tool("browser_find", title="Find in page snapshot", read_only=True)
async def find(call: Call, given: Find) -> None:
    """Search the page's snapshot, and return what was found with its refs, the lines around it and what it is in.

    Shorter than the whole snapshot where only one element is looked for.
    """
    if (given.text is None) == (given.regex is None):
        raise ToolFailed("Give either a text or a regex.")
    lines = (await call.snapshot_of(await call.tab())).splitlines()
    if given.text is not None:
        sought = repr(given.text)
        found = [n for n, line in enumerate(lines) if given.text.lower() in line.lower()]
    else:
        pattern, flags = _split(given.regex or "")
        sought = f"/{pattern}/{flags}"
        found = await matching(pattern, flags, lines)
    if not found:
        call.answer.result(f"Nothing matches {sought}.")
        return
    head = f"{len(found)} {'lines match' if len(found) > 1 else 'line matches'} {sought}:"
    text = "\n\n----\n\n".join(_excerpts(lines, found))
    await call.put(f"{head}\n\n{text}", given.filename, label="Find results")


def _split(regex: str) -> tuple[str, str]:
    """Return pattern and flags of `/pattern/flags`, or of a pattern alone."""
    pattern, slash, flags = regex[1:].rpartition("/")
    if regex.startswith("/") and slash and all(flag in "dgimsuvy" for flag in flags):
        return pattern, flags
    return regex, ""


def _excerpts(lines: list[str], found: list[int]) -> list[str]:
    """Return the lines around the matches, in runs, each below its ancestor elements."""
    runs: list[range] = []
    for place in found:
        around = range(max(0, place - AROUND), min(len(lines), place + AROUND + 1))
        if runs and around.start <= runs[-1].stop:
            runs[-1] = range(runs[-1].start, around.stop)
        else:
            runs.append(around)
    return [_excerpt(lines, [*_above(lines, run.start), *run]) for run in runs]


def _excerpt(lines: list[str], places: list[int]) -> str:
    """Return the lines at some places, with dots for lines left out between an element and its shown descendants."""
    shown: list[str] = []
    for before, place in zip([places[0], *places], places, strict=False):
        if place > before + 1:
            shown.append(" " * _depth(lines[place]) + "...")
        shown.append(lines[place])
    return "\n".join(shown)


def _above(lines: list[str], place: int) -> list[int]:
    depth, above = _depth(lines[place]), list[int]()
    for number in range(place - 1, -1, -1):
        if _depth(lines[number]) < depth:
            above.append(number)
            depth = _depth(lines[number])
    return above[::-1]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


class TakeScreenshot(BrowserArguments):
    element: Element = None
    target: Annotated[Target | None, Field(description="Only this element, by ref or selector")] = (
        None
    )
    type: Literal["png", "jpeg", "webp"] | None = None
    filename: Filename = None
    full_page: Annotated[
        bool | None, Field(alias="fullPage", description="The whole page, not only what is in view")
    ] = None
    scale: Annotated[
        Literal["css", "device"], Field(description="A pixel for each of CSS, or of the device")
    ] = "css"


@tool("browser_take_screenshot", title="Take a screenshot", read_only=True)
async def take_screenshot(call: Call, given: TakeScreenshot) -> None:
    """Take a picture of the page or an element, to look at; to act on elements, take a snapshot."""
    if given.full_page and given.target:
        raise ToolFailed(
            "A picture of an element is not one of the full page; leave out one of them."
        )
    kind = given.type or _KINDS.get(_ending(given.filename or ""), "png")
    options: Any = {"type": kind, "scale": given.scale, "timeout": call.timeout}
    if kind == "jpeg":
        options["quality"] = 90
    data, what, code = await _taken(call, given, options)
    call.answer.code(f"await {code}.screenshot({_written(options, given)})")
    name = given.filename or ("element" if given.target else "page")
    if _KINDS.get(_ending(name)) != kind:
        name = f"{name}.{kind}"
    await call.keep(name, data, label=f"Screenshot of {what}")
    sides = _sides(data) if kind == "png" else ()
    if len(data) <= INLINE_BYTES and max(sides, default=0) <= LONGEST:
        call.answer.image(data, f"image/{kind}")
    else:
        call.answer.result("It is too large to be shown here; the file has it. A jpeg is smaller.")


async def _taken(call: Call, given: TakeScreenshot, options: Any) -> tuple[bytes, str, str]:
    """Return a picture, the words for its subject, and the code that takes it."""
    tab = await call.arrived()
    if given.target is not None:
        locator = await call.locate(given.target, given.element)
        return await locator.screenshot(**options), given.element or "element", call.answer_code
    if not given.full_page:
        return await tab.page.screenshot(**options), "viewport", "page"
    clip = await clip_of(tab.page, given.scale)
    if clip is not None:
        options["clip"] = clip
        call.answer.result("The page is longer than a picture may be; it shows the upper part.")
    return await tab.page.screenshot(full_page=True, **options), "full page", "page"


async def clip_of(page: Page, scale: str) -> Any:
    """Return the upper left part of a page that fits into a picture, or None if all of it fits."""
    width, height, ratio = await page.evaluate(
        "() => { const e = document.documentElement;"
        " return [+e.scrollWidth, +Math.max(e.scrollHeight, innerHeight), +devicePixelRatio]; }"
    )
    longest = math.floor(LONGEST / (ratio if scale == "device" else 1))
    if width <= longest and height <= longest:
        return None
    return {"x": 0, "y": 0, "width": min(width, longest), "height": min(height, longest)}


def _ending(filename: str) -> str:
    return PurePath(filename).suffix.lower()


def _written(options: Any, given: TakeScreenshot) -> str:
    shown = {key: value for key, value in options.items() if key != "timeout"}
    if given.full_page:
        shown["full_page"] = True
    return ", ".join(f"{key}={value!r}" for key, value in shown.items())


def _sides(png: bytes) -> tuple[int, ...]:
    return struct.unpack(">II", png[16:24])


TOOLS: list[BrowserTool] = [snapshot, find, take_screenshot]
