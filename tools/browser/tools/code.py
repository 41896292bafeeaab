"""Running code from the caller in the page or outside of it, and the tools that a page offers by WebMCP."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

from pydantic import Field

from ....sessions.json_codec import JSON
from ...definition import NoArguments
from .. import errors
from ..answers.answer import as_json
from ..call import BrowserCall
from ..errors import BrowserToolFailed
from ..process.node_js import run_code
from ..session.uploads import read_allowed
from ..tool import BrowserArguments, BrowserTool, Element, Filename, Target, tool

if TYPE_CHECKING:
    from playwright.async_api import Frame, JSHandle, Locator

    from ..logins.lending import SessionLogins

Script: TypeAlias = Callable[[], Awaitable[object]]

_ORIGIN: Final = "() => self.origin"
LATE_RESULT: Final = 2000
"""The most characters shown of a script's result that came late because a dialog blocked it."""
_CAUSES: Final = re.compile(
    r"click|submit|location|history|dispatch|fetch|reload|navigat|open\(|set(?:Timeout|Interval)|await"
)
"""Matches scripts that may have effects after they return; only after those the page is given time to settle."""


class Evaluate(BrowserArguments):
    function: Annotated[
        str, Field(description="() => value, or (element) => value when a target is given")
    ]
    element: Element = None
    target: Target | None = None
    filename: Filename = None


@tool("browser_evaluate", title="Evaluate JavaScript", limit="script")
async def evaluate(call: BrowserCall, arguments: Evaluate) -> None:
    """Run a JavaScript function in the page, or on one element, and return what it returns."""
    quiet = _CAUSES.search(arguments.function) is not None
    tab = await call.tab()
    locator: Locator | None = None
    if arguments.target is None:
        code = "page"
        script: Script = partial(tab.page.evaluate, arguments.function)
    else:
        locator = await call.locate(arguments.target, arguments.element)
        code = call.element_code
        script = partial(locator.evaluate, arguments.function, timeout=call.timeout)
    if call.logins is None:
        call.session.scripts.record_script()
    else:
        find: Callable[[], Awaitable[JSHandle]] = partial(tab.page.evaluate_handle, "document")
        if locator is not None:
            find = partial(locator.element_handle, timeout=call.timeout)
        script = partial(_evaluate_in, call, call.logins, find, arguments.function)
    values = await _values_of(call, script, "The script", quiet=quiet, snapshot=False)
    call.answer.code(f"await {code}.evaluate({arguments.function!r})")
    if values:
        await call.add_text(as_json(values[0]), arguments.filename, label="Evaluation result")


async def _evaluate_in(
    call: BrowserCall,
    logins: SessionLogins,
    find: Callable[[], Awaitable[JSHandle]],
    function: str,
) -> object:
    """Run a function in the document that was checked: while a call waits, the page may go to the site of a login.

    The address does not tell the origin of each document, such as that of an empty window that a page has opened.
    """
    target = await find()
    logins.require_script(await target.evaluate(_ORIGIN))
    call.session.scripts.record_script()
    return await target.evaluate(function)


async def _values_of(
    call: BrowserCall, script: Script, what: str, **options: bool
) -> Sequence[object]:
    """Run a script as an action and return its value, the only one; none if a dialog keeps it from returning.

    Events then say so, and later what it returned.
    """
    tab = await call.tab()
    values, is_late = list[object](), False

    async def run() -> None:
        values.append(await script())
        if is_late:
            text = as_json(values[0])
            more = "" if len(text) <= LATE_RESULT else f"... ({len(text)} characters)"
            text = call.session.secrets.named.cut(text, LATE_RESULT)
            tab.event_lines.append(f"{what} that had waited returned {text}{more}")

    await call.act(run, **options)
    if not values:
        is_late = True
        tab.event_lines.append(
            f"{what} has not returned yet: it goes on when the page was answered."
        )
    return values


class RunCode(BrowserArguments):
    code: Annotated[
        str | None,
        Field(description="async (page) => { ... }, in Playwright's JavaScript"),
    ] = None
    filename: Annotated[
        str | None,
        Field(
            description="A file of the session, or of the upload folders, that holds the code instead"
        ),
    ] = None


@tool(
    "browser_run_code_unsafe",
    title="Run Playwright code (unsafe)",
    cap="unsafe",
    limit="script",
)
async def run_code_unsafe(call: BrowserCall, arguments: RunCode) -> None:
    """Run JavaScript with Playwright's page object on the machine of the server.

    Unsafe: the code can do there whatever the server can, and reach the browsers of other sessions.
    """
    code = arguments.code
    if arguments.filename is not None:
        code = await _read_code(call, arguments.filename)
    if code is None:
        raise BrowserToolFailed("Give the code, or the filename of a file that holds it.")
    if call.logins is not None:
        call.logins.require_script(None)
    call.answer.script(f"await ({code})(page);")
    page = (await call.tab()).page
    call.session.scripts.record_code()
    output = await call.act(lambda: run_code(page, code, seconds=call.config.script_seconds))
    if output:
        call.answer.result(output)


async def _read_code(call: BrowserCall, name: str) -> str:
    try:
        return (await read_allowed(call.session, call.ctx, name)).decode()
    except (OSError, UnicodeDecodeError):
        raise BrowserToolFailed(f"{name[:200]!r} is no text file.") from None


@tool("browser_webmcp_list", title="List the page's tools", cap="webmcp", read_only=True)
async def webmcp_list(call: BrowserCall, arguments: NoArguments) -> None:
    """List the tools that the page and its frames offer by WebMCP, for browser_webmcp_call."""
    offered = [one for frame in await _frames(call) for one in await _tools_of(call, frame)]
    call.answer.result(as_json(offered) if offered else "The page offers no tools.")


class CallPageTool(BrowserArguments):
    name: Annotated[str, Field(description="As in browser_webmcp_list")]
    arguments: Annotated[
        dict[str, Any] | None, Field(description="The input, as its inputSchema says")
    ] = None


@tool("browser_webmcp_call", title="Call a tool of the page", cap="webmcp", limit="script")
async def webmcp_call(call: BrowserCall, arguments: CallPageTool) -> None:
    """Call a tool that the page offers by WebMCP, and return what it returns."""
    name, given = arguments.name, arguments.arguments or {}
    for frame in await _frames(call):
        if name in [one["name"] for one in await _tools_of(call, frame)]:
            break
    else:
        raise BrowserToolFailed(
            f"The page offers no tool {name[:200]!r}; browser_webmcp_list lists them."
        )
    page_tools, seconds = frame.webmcp, call.config.script_seconds
    script = partial(page_tools.call_tool, name, given, timeout=seconds * 1000)
    values = await _values_of(call, script, "The tool")
    owner = "page" if frame.parent_frame is None else f"page.frame(url={frame.url!r})"
    call.answer.code(f"await {owner}.webmcp.call_tool({name!r}, {given!r})")
    for value in values:
        text = as_json(value)
        if isinstance(value, dict) and cast("JSON", value).get("isError") is True:
            raise BrowserToolFailed(text)
        call.answer.result(text)


async def _frames(call: BrowserCall) -> list[Frame]:
    return (await call.ready_tab()).page.frames


async def _tools_of(call: BrowserCall, frame: Frame) -> list[JSON]:
    """Return the tools that a frame offers; none if it is a frame that goes away meanwhile.

    Raises:
        playwright's Error: The browser does not support WebMCP.
    """
    try:
        return [cast("JSON", one) for one in await frame.webmcp.tools(timeout=call.timeout)]
    except errors.Error:
        if frame.parent_frame is None:
            raise
        return []


TOOLS: list[BrowserTool] = [evaluate, run_code_unsafe, webmcp_list, webmcp_call]
