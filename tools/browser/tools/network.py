"""Requests and console messages of the pages of a session."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
from pydantic import Field

from .. import errors as browser_errors
from ..call import BrowserCall
from ..errors import BrowserToolFailed, describe_error
from ..process.node_js import match_lines
from ..secrets.session_secrets import MASK
from ..secrets.spellings import LOGIN_HEADER, without_value_of_login
from ..session.tab import LEVELS, Level
from ..tool import BrowserArguments, BrowserTool, Filename, tool

if TYPE_CHECKING:
    from playwright.async_api import Request, Response

HeaderMask: TypeAlias = Callable[[str, str], str]
"""Returns what a result shows of the value of a header, by name and value."""
_DATA_TYPES: Final = frozenset({"xhr", "fetch", "websocket", "eventsource", "ping"})
"""Kinds of requests for data; other successful requests count as static."""


class NetworkRequests(BrowserArguments):
    static: Annotated[
        bool, Field(description="Also pages, scripts, styles, fonts and pictures that went well")
    ] = False
    filter: Annotated[str | None, Field(description="A regular expression that URLs match")] = None
    filename: Filename = None


@tool("browser_network_requests", title="List network requests", read_only=True)
async def network_requests(call: BrowserCall, arguments: NetworkRequests) -> None:
    """List the requests since the page was loaded, each with the number that browser_network_request takes."""
    tab = await call.tab()
    requests = tab.numbered_requests()
    if arguments.filter is not None:
        indexes = await match_lines(arguments.filter, "", [request.url for _, request in requests])
        requests = [requests[index] for index in indexes]
    visible = [(n, r) for n, r in requests if arguments.static or not _is_static(r)]
    lines = [_line(call, number, request) for number, request in visible]
    hidden_count = len(requests) - len(visible)
    if hidden_count:
        one = hidden_count == 1
        lines.append(
            f'\nNote: {hidden_count} static request{"" if one else "s"} not shown, run with "static" option to see '
            f"{'it' if one else 'them'}."
        )
    await call.add_text("\n".join(lines) or "No requests.", arguments.filename, label="Network")


def _is_static(request: Request) -> bool:
    response = request.existing_response
    if request.resource_type in _DATA_TYPES or request.failure is not None or response is None:
        return False
    return response.status < 400


def _line(call: BrowserCall, number: int, request: Request) -> str:
    line = f"{number}. [{request.method}] {call.session.secrets.named.cut(request.url, 2000)}"
    response = request.existing_response
    if request.failure is not None:
        return (
            f"{line} => [FAILED] {call.session.host_errors.explain(request.url, request.failure)}"
        )
    if response is not None:
        return f"{line} => {_status(response)}"
    return line


def _status(response: Response) -> str:
    return f"[{response.status}] {response.status_text}".rstrip()


class NetworkRequest(BrowserArguments):
    index: Annotated[int, Field(ge=1, description="The number in browser_network_requests")]
    part: Literal["request-headers", "request-body", "response-headers", "response-body"] | None = (
        None
    )
    filename: Filename = None


@tool("browser_network_request", title="Show network request details", read_only=True)
async def network_request(call: BrowserCall, arguments: NetworkRequest) -> None:
    """Return one request and its response with their headers, or only one part of them, such as a body."""
    tab = await call.tab()
    request = dict(tab.numbered_requests()).get(arguments.index)
    if request is None:
        raise BrowserToolFailed(
            f"Request #{arguments.index} not found. Use browser_network_requests to see available indexes."
        )
    try:
        with anyio.fail_after(call.config.action_seconds):
            content = (
                await _read_part(call, request, arguments.part)
                if arguments.part
                else await _describe_request(call, arguments.index, request)
            )
    except TimeoutError:
        raise BrowserToolFailed("It is not there yet: the response has not ended.") from None
    except browser_errors.Error as error:
        raise BrowserToolFailed(f"It cannot be had: {describe_error(error)}") from None
    name = arguments.filename
    if isinstance(content, str):
        await call.add_text(content, name, label="Request")
    elif name is not None:
        await call.add_file(name, content, label="Request")
    else:
        await _add_body(call, arguments, request, content)


async def _add_body(
    call: BrowserCall, arguments: NetworkRequest, request: Request, body: bytes
) -> None:
    """Add a body to the result if it is text, else as a file of the session."""
    text = _text_of(body)
    if text is not None:
        call.answer.result(text)
        return
    name = await _body_name(arguments, request)
    await call.add_file(name, body, label=f"Body, {len(body)} bytes", is_chosen=False)


def _text_of(body: bytes) -> str | None:
    with suppress(UnicodeDecodeError):
        text = body.decode()
        return text if "\0" not in text else None
    return None


async def _body_name(arguments: NetworkRequest, request: Request) -> str:
    """Return a file name for a body: the last part of the address of a response, with a suffix of its type."""
    response = request.existing_response
    if arguments.part == "response-body" and response is not None:
        stem = PurePosixPath(unquote(urlsplit(request.url).path)).name
        headers = await response.all_headers()
    else:
        stem, headers = "", await request.all_headers()
    if PurePosixPath(stem).suffix:
        return stem
    mime = headers.get("content-type", "").partition(";")[0].strip()
    suffix = mimetypes.guess_extension(mime) or ".bin"
    return f"{stem or f'{arguments.part}-{arguments.index}'}{suffix}"


async def _read_part(call: BrowserCall, request: Request, part: str) -> str | bytes:
    mask = _mask_of(call, request)
    if part == "request-headers":
        return _headers(await request.all_headers(), mask)
    if part == "request-body":
        return request.post_data_buffer or "The request has no body."
    response = request.existing_response
    if response is None:
        raise BrowserToolFailed(
            f"There is no response{f': {request.failure}' if request.failure else ' yet'}."
        )
    if part == "response-headers":
        return _headers(await response.all_headers(), mask)
    return await response.body()


def _mask_of(call: BrowserCall, request: Request) -> HeaderMask:
    """Return the function that masks the headers of a request."""
    return without_value_of_login if call.login_sites.has_address(request.url) else _without_login


async def _describe_request(call: BrowserCall, number: int, request: Request) -> str:
    response = request.existing_response
    headers = await request.all_headers()
    response_headers = {} if response is None else await response.all_headers()
    facts: dict[str, str] = {}
    if response is not None:
        facts["status"] = _status(response)
    elif request.failure is not None:
        facts["status"] = f"[FAILED] {request.failure}"
    if response is not None and (duration := request.timing["responseEnd"]) >= 0:
        facts["duration"] = f"{duration:.0f}ms"
    facts["type"] = request.resource_type
    if mime := response_headers.get("content-type", "").partition(";")[0].strip():
        facts["mimeType"] = mime
    general = [f"    {name + ':':<10} {value}" for name, value in facts.items()]
    parts = ["\n".join(["  General", *general])]
    for title, fields in (("Request headers", headers), ("Response headers", response_headers)):
        if fields:
            lines = _headers(fields, _mask_of(call, request)).splitlines()
            parts.append("\n".join([f"  {title}", *(f"    {line}" for line in lines)]))
    bodies = ["request"] if request.post_data_buffer else []
    bodies += ["response"] if response is not None and _may_have_body(response) else []
    hint = 'Call browser_network_request with part="{0}-body" to read the {0} body.'
    parts += ["\n".join(hint.format(body) for body in bodies)] if bodies else []
    return "\n\n".join([f"#{number} [{request.method}] {request.url}", *parts])


def _may_have_body(response: Response) -> bool:
    return response.status >= 200 and response.status not in (204, 304)


def _headers(headers: dict[str, str], mask: HeaderMask) -> str:
    return "\n".join(f"{name}: {mask(name, value)}" for name, value in headers.items())


def _without_login(name: str, value: str) -> str:
    """Return the value of a header; of one that logs in, only the names and attributes in it."""
    match name.lower():
        case "cookie":
            return "; ".join(_without_value(pair) for pair in value.split(";"))
        case "set-cookie":
            cookies = [line.partition(";") for line in value.split("\n")]
            return "\n".join(f"{_without_value(pair)}{mark}{rest}" for pair, mark, rest in cookies)
        case lowered if LOGIN_HEADER.search(lowered):
            scheme, blank, _ = value.partition(" ")
            has_scheme = bool(blank) and lowered.endswith("authorization")
            return f"{scheme} {MASK}" if has_scheme else MASK
        case _:
            return value


def _without_value(pair: str) -> str:
    name, mark, _ = pair.partition("=")
    return f"{name.strip()}={MASK}" if mark else MASK


class ConsoleMessages(BrowserArguments):
    level: Annotated[Level, Field(description="This level and what is more severe")] = "info"
    all: Annotated[bool | None, Field(description="Also of pages before this one in the tab")] = (
        None
    )
    filename: Filename = None


@tool("browser_console_messages", title="Get console messages", read_only=True)
async def console_messages(call: BrowserCall, arguments: ConsoleMessages) -> None:
    """Return the console messages and uncaught errors of the page."""
    tab = await call.tab()
    page_lines = tab.page_console()
    levels = LEVELS[: LEVELS.index(arguments.level) + 1]
    lines = [
        line for line in (tab.console if arguments.all else page_lines) if line.level in levels
    ]
    errors, warnings = tab.count_problems()
    head = f"Total messages: {len(page_lines)} (Errors: {errors}, Warnings: {warnings})"
    if len(lines) != len(page_lines):
        head += f'\nReturning {len(lines)} messages for level "{arguments.level}"'
    text = "\n".join([head, "", *map(str, lines)])
    await call.add_text(text, arguments.filename, label="Console")


TOOLS: list[BrowserTool] = [console_messages, network_requests, network_request]
