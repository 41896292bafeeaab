"""The network as the session's pages see it: offline, and with mocked requests."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from ...definition import NoArguments
from ..call import BrowserCall
from ..errors import BrowserToolFailed
from ..session.mocks import Mock, is_ours
from ..tool import BrowserArguments, BrowserTool, Whole, tool

_HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*)")


class NetworkState(BrowserArguments):
    state: Literal["online", "offline"]


@tool("browser_network_state_set", title="Set network state", cap="network")
async def network_state_set(call: BrowserCall, arguments: NetworkState) -> None:
    """Take the session's browser offline, where every request fails, or online again."""
    offline = arguments.state == "offline"
    await call.session.offline.set(offline)
    call.answer.result(f"Network is now {arguments.state}")
    call.answer.code(f"await page.context.set_offline({offline})")


class AddRoute(BrowserArguments):
    may_be_empty = ("body",)

    pattern: Annotated[
        str,
        Field(min_length=1, description="URLs, such as **/api/users or **/*.{png,jpg}"),
    ]
    status: Annotated[
        Whole | None, Field(ge=200, le=599, description="The status of the answer; 200 by default")
    ] = None
    body: Annotated[
        str | None, Field(description="The body of the answer, in place of the server's")
    ] = None
    content_type: Annotated[
        str | None,
        Field(alias="contentType", description="The type of the body, such as application/json"),
    ] = None
    headers: Annotated[
        list[str] | None,
        Field(description="Name: Value, of the answer, or of the request when nothing is answered"),
    ] = None
    remove_headers: Annotated[
        str | None,
        Field(alias="removeHeaders", description="Names of request headers, with commas between"),
    ] = None


@tool("browser_route", title="Mock network requests", cap="network")
async def route(call: BrowserCall, arguments: AddRoute) -> None:
    """Answer requests of a URL pattern yourself, with status, body or contentType; or only change their headers.
    Stays until browser_unroute, and keeps the session from being paused for half an hour; then a pause may end it, and the
    next result says so.
    """
    if call.logins is not None:
        call.logins.require_script(None)
    removed_headers = [name.strip() for name in (arguments.remove_headers or "").split(",")]
    mock = Mock(
        arguments.pattern,
        status=arguments.status,
        body=arguments.body,
        content_type=arguments.content_type,
        headers=dict(map(_header, arguments.headers or [])),
        removed_headers=tuple(name for name in removed_headers if name),
    )
    if mock.content_type is not None:
        _header(f"Content-Type: {mock.content_type}")
    _check(mock)
    try:
        await call.session.mocks.add(mock)
    except IndexError as error:
        raise BrowserToolFailed(f"No route was added: {error}.") from None
    except ValueError as error:
        raise BrowserToolFailed(f"{arguments.pattern!r} is no URL pattern: {error}.") from None
    call.answer.result(f"Route added for pattern: {arguments.pattern}")
    call.answer.code(f"await page.context.route({arguments.pattern!r}, handle)")


def _header(line: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(line.strip())
    if match is None:
        raise BrowserToolFailed(f'Invalid header "{line[:200]}": expected "Name: Value"')
    return match[1], match[2]


def _check(mock: Mock) -> None:
    if mock.answers and mock.removed_headers:
        raise BrowserToolFailed(
            "removeHeaders is about the request, which nobody gets when status, body or contentType answers it."
        )
    if not (mock.answers or mock.headers or mock.removed_headers):
        raise BrowserToolFailed(
            "Say what the route does: answer with status, body or contentType, or change request headers with headers"
            " or removeHeaders."
        )
    reserved = (
        [] if mock.answers else [n for n in (*mock.headers, *mock.removed_headers) if is_ours(n)]
    )
    if reserved:
        raise BrowserToolFailed(
            f"The header {reserved[0][:100]} is added by the browser itself; a route cannot change it."
        )


@tool("browser_route_list", title="List network routes", cap="network", read_only=True)
async def route_list(call: BrowserCall, arguments: NoArguments) -> None:
    """List the routes that browser_route added; where several match, the last one decides."""
    lines = [f"{number}. {mock}" for number, mock in enumerate(call.session.mocks, 1)]
    call.answer.result("\n".join(lines) or "No active routes")


class RemoveRoute(BrowserArguments):
    pattern: Annotated[str | None, Field(description="As it was added; all when left out")] = None


@tool("browser_unroute", title="Remove network routes", cap="network")
async def unroute(call: BrowserCall, arguments: RemoveRoute) -> None:
    """Remove the routes of one pattern, or all of them."""
    count = await call.session.mocks.remove(arguments.pattern)
    if arguments.pattern is None:
        call.answer.result(f"Removed all {count} route(s)")
        return
    call.answer.result(f"Removed {count} route(s) for pattern: {arguments.pattern}")


TOOLS: list[BrowserTool] = [network_state_set, route, route_list, unroute]
