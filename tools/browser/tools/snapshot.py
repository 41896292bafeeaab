"""Views of a page: its snapshot, a search in the snapshot, and a picture."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import anyio
from pydantic import Field

from .. import errors
from ..answers.difference import difference
from ..answers.page_snapshot import TOKEN, fit
from ..call import BrowserCall
from ..errors import BrowserToolFailed
from ..process.node_js import match_lines
from ..tool import BrowserArguments, BrowserTool, Element, Filename, Target, Whole, tool

if TYPE_CHECKING:
    from playwright.async_api import Page

TOKENS: Final = 20_000
"""The most tokens that browser_snapshot, unless it is told otherwise, and browser_find answer with."""
CONTEXT_LINES: Final = 3
"""The number of lines shown around a match."""
MAX_SIDE: Final = 8000
"""The longest side of a picture in pixels; models accept no larger ones."""
INLINE_BYTES: Final = 3 * 2**20
FONT_SECONDS: Final = 3.5
"""Seconds to wait for fonts. For the first three of them the browser does not show a text whose font is missing."""
FONT_ANSWER_SECONDS: Final = 1.0
"""Seconds for the answer of the page about its fonts."""
_FONTS: Final = """milliseconds => {
  // An element named "fonts" hides the property of the document.
  const { get } = Object.getOwnPropertyDescriptor(Document.prototype, "fonts");
  return Promise.race([
    get.call(document).ready.then(() => true),
    new Promise(done => setTimeout(done, milliseconds, false)),
  ]);
}"""
_KINDS: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}


class TakeSnapshot(BrowserArguments):
    target: Annotated[Target | None, Field(description="Only this element, by ref or selector")] = (
        None
    )
    filename: Filename = None
    depth: Annotated[Whole | None, Field(ge=0, description="How many levels; 0 for all")] = None
    boxes: Annotated[bool | None, Field(description="With the place of each element")] = None
    max_tokens: Annotated[
        Whole | None,
        Field(ge=200, description=f"Most tokens of the answer; {TOKENS:,} when left out"),
    ] = None


@tool("browser_snapshot", title="Page snapshot", read_only=True)
async def snapshot(call: BrowserCall, arguments: TakeSnapshot) -> None:
    """Return the page as text, with a ref for each element that other tools take; better than a screenshot.

    A page of more than max_tokens comes as an outline; then use browser_find, or take the snapshot of a target.
    """
    tab = await call.tab()
    call.shows_page = True
    locator = await call.locate(arguments.target) if arguments.target else None
    options = {"depth": arguments.depth or None, "boxes": arguments.boxes}
    given_options = {key: value for key, value in options.items() if value is not None}
    before = tab.shown_snapshot
    text = await call.read_with_title(tab, partial(call.snapshot_of, tab, locator, **given_options))
    if locator is None and not given_options:
        tab.shown_snapshot = tab.last_snapshot
        if call.ctx.wants_facts:
            # A step before, such as the answer to a dialog, may have shown no page.
            call.facts.record_change(
                before, text, None if before is None else difference(before, text)
            )
    if arguments.filename is None:
        call.answer.snapshot(fit(text, arguments.max_tokens or TOKENS, texts=True))
    else:
        await call.add_text(text, arguments.filename, label="Snapshot")


class Find(BrowserArguments):
    text: Annotated[str | None, Field(description="A text, in upper or lower case")] = None
    regex: Annotated[
        str | None, Field(description="A regular expression of JavaScript, or /one/i with flags")
    ] = None
    filename: Filename = None


@tool("browser_find", title="Find in page snapshot", read_only=True)
async def find(call: BrowserCall, arguments: Find) -> None:
    """Search the page's snapshot, and return what was found with its refs, the lines around it and what it is in.

    Cheaper than the snapshot to find one element.
    """
    if arguments.text is None and arguments.regex is None:
        raise BrowserToolFailed('Provide either "text" or "regex" to search for.')
    if arguments.text is not None and arguments.regex is not None:
        raise BrowserToolFailed('Provide only one of "text" or "regex", not both.')
    lines = (await call.snapshot_of(await call.tab())).splitlines()
    if arguments.text is not None:
        expression = f'"{arguments.text}"'
        matches = [n for n, line in enumerate(lines) if arguments.text.lower() in line.lower()]
    else:
        pattern, flags = _split(arguments.regex or "")
        expression = f"/{pattern}/{flags}"
        matches = await match_lines(pattern, flags, lines)
    if not matches:
        call.answer.result(f"No matches found for {expression}.")
        return
    head = f"Found {len(matches)} {'matches' if len(matches) > 1 else 'match'} for {expression}:"
    text = "\n\n----\n\n".join(_excerpts(lines, matches))
    if arguments.filename is None:
        text = _cut(text, TOKENS * TOKEN)
    await call.add_text(f"{head}\n\n{text}", arguments.filename, label="Find results")


def _cut(text: str, limit: int) -> str:
    """Return the lines that fit into so many characters, and a last line about the others."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit)
    end = limit if end < 0 else end
    return (
        f"{text[:end]}\n\n# {text.count(chr(10), end)} more lines were left out. Search for more of the text, or write"
        " all to a file (filename)."
    )


def _split(regex: str) -> tuple[str, str]:
    """Return pattern and flags of `/pattern/flags`, or of a pattern alone."""
    pattern, slash, flags = regex[1:].rpartition("/")
    if regex.startswith("/") and slash and all(flag in "dgimsuvy" for flag in flags):
        return pattern, flags
    return regex, ""


def _excerpts(lines: list[str], matches: list[int]) -> list[str]:
    """Return the lines around the matches, in runs, each below its ancestor elements."""
    runs: list[range] = []
    for match in matches:
        context = range(max(0, match - CONTEXT_LINES), min(len(lines), match + CONTEXT_LINES + 1))
        if runs and context.start <= runs[-1].stop:
            runs[-1] = range(runs[-1].start, context.stop)
        else:
            runs.append(context)
    path = {number for match in matches for number in (match, *_ancestors(lines, match))}
    return [_excerpt(lines, [*_ancestors(lines, run.start), *run], path) for run in runs]


def _excerpt(lines: list[str], numbers: list[int], path: set[int]) -> str:
    """Return the lines at some places, with dots for lines left out, except beside matches and their ancestors, `path`."""
    excerpt: list[str] = []
    for previous, number in zip([numbers[0], *numbers], numbers, strict=False):
        if number > previous + 1 and path.isdisjoint((previous, number)):
            excerpt.append(" " * _depth(lines[number]) + "...")
        excerpt.append(lines[number])
    return "\n".join(excerpt)


def _ancestors(lines: list[str], start: int) -> list[int]:
    depth, above = _depth(lines[start]), list[int]()
    for number in range(start - 1, -1, -1):
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
async def take_screenshot(call: BrowserCall, arguments: TakeScreenshot) -> None:
    """Take a picture of the page or an element, to look at. To act on elements, use browser_snapshot.

    With a filename it goes into that file only.
    """
    if arguments.full_page and arguments.target:
        raise BrowserToolFailed(
            "fullPage cannot be used with element screenshots; leave out one of them."
        )
    kind = arguments.type or _KINDS.get(_suffix(arguments.filename or ""), "png")
    options: Any = {"type": kind, "scale": arguments.scale, "timeout": call.timeout}
    if kind == "jpeg":
        options["quality"] = 90
    data, what, code = await _take_picture(call, arguments, options)
    call.answer.code(f"await {code}.screenshot({_options_code(options, arguments)})")
    name = arguments.filename or ("element" if arguments.target else "page")
    if _KINDS.get(_suffix(name)) != kind:
        name = f"{name}.{kind}"
    is_chosen = bool(arguments.filename)
    await call.add_file(name, data, label=f"Screenshot of {what}", is_chosen=is_chosen)
    if is_chosen or call.config.image_responses == "omit":
        return
    sides = _png_size(data) if kind == "png" else ()
    if len(data) <= INLINE_BYTES and max(sides, default=0) <= MAX_SIDE:
        call.answer.image(data, f"image/{kind}")
    else:
        call.answer.result("It is too large to be shown here; the file has it. A jpeg is smaller.")


async def _take_picture(
    call: BrowserCall, arguments: TakeScreenshot, options: Any
) -> tuple[bytes, str, str]:
    """Return a picture, the words for its subject, and the code that takes it."""
    tab = await call.ready_tab()
    has_fonts = await fonts_loaded(tab.page, min(FONT_SECONDS, call.config.action_seconds))
    what, code, clip = "viewport", "page", None
    if arguments.target is not None:
        locator = await call.locate(arguments.target, arguments.element)
        what, code = arguments.element or "element", call.element_code
        data = await locator.screenshot(**options)
    elif not arguments.full_page:
        data = await tab.page.screenshot(**options)
    else:
        what, clip = "full page", await clip_of(tab.page, arguments.scale)
        options |= {"clip": clip} if clip is not None else {}
        data = await tab.page.screenshot(full_page=True, **options)
    if not has_fonts:
        call.answer.result(
            "A font of the page has not arrived; the picture shows another one in its place."
        )
    if clip is not None:
        call.answer.result("The page is longer than a picture may be; it shows the upper part.")
    return data, what, code


async def fonts_loaded(page: Page, seconds: float) -> bool:
    """Wait for the fonts of a page, for so many seconds at most; return False if some are missing then.

    A page that does not tell, for example as it navigates, misses none.
    """
    with suppress(errors.Error), anyio.move_on_after(seconds + FONT_ANSWER_SECONDS):
        return await page.evaluate(_FONTS, seconds * 1000) is not False
    return True


async def clip_of(page: Page, scale: str) -> Any:
    """Return the upper left part of a page that fits into a picture, or None if all of it fits."""
    width, height, ratio = await page.evaluate(
        "() => { const e = document.documentElement;"
        " return [+e.scrollWidth, +Math.max(e.scrollHeight, innerHeight), +devicePixelRatio]; }"
    )
    longest = math.floor(MAX_SIDE / (ratio if scale == "device" else 1))
    if width <= longest and height <= longest:
        return None
    return {"x": 0, "y": 0, "width": min(width, longest), "height": min(height, longest)}


def _suffix(filename: str) -> str:
    return PurePath(filename).suffix.lower()


def _options_code(options: Any, arguments: TakeScreenshot) -> str:
    visible = {key: value for key, value in options.items() if key != "timeout"}
    if arguments.full_page:
        visible["full_page"] = True
    return ", ".join(f"{key}={value!r}" for key, value in visible.items())


def _png_size(png: bytes) -> tuple[int, ...]:
    return struct.unpack(">II", png[16:24])


TOOLS: list[BrowserTool] = [snapshot, find, take_screenshot]
