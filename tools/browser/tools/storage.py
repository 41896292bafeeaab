"""All cookies and storages of the session at once, as a file."""

from __future__ import annotations

import json
from typing import Annotated, Final

import anyio.to_thread
from pydantic import Field

from ....sessions.one_line import plural
from .. import errors
from ..call import BrowserCall
from ..devtools.world import WorldError, origin_of
from ..errors import BrowserToolFailed, describe_error
from ..session.files import file_name
from ..session.uploads import read_allowed
from ..snapshot.capture import capture
from ..snapshot.model import ContextSnapshot
from ..snapshot.restore import add_cookies
from ..snapshot.storage_file import parse_storage_state
from ..tool import BrowserArguments, BrowserTool, Filename, tool

READ_SECONDS: Final = 10.0


class SaveState(BrowserArguments):
    filename: Filename = None


@tool(
    "browser_storage_state",
    title="Save storage state",
    cap="storage",
    read_only=True,
    limit="navigation",
)
async def storage_state(call: BrowserCall, arguments: SaveState) -> None:
    """Save cookies, local storage and IndexedDB of all sites into a file of the session, which holds its logins."""
    session = call.session
    state = await capture(
        session.context, (), 0, light=False, seconds=READ_SECONDS, origins=session.origins
    )
    state = call.login_sites.leave_out(state)
    origins = [stored.to_state(origin) for origin, stored in state.origins.items()]
    # json.dumps() escapes non-ASCII by default: packed data may contain lone surrogates, which UTF-8 cannot encode.
    data = json.dumps({"cookies": state.cookies, "origins": origins}, indent=2).encode()
    if state.lost:
        call.answer.result("Not among it: " + ", ".join(state.lost))
    name = file_name(arguments.filename, "storage-state.json")
    await call.add_file(name, data, label="Storage state", is_chosen=bool(arguments.filename))
    call.answer.code("await page.context.storage_state(indexed_db=True)")


class LoadState(BrowserArguments):
    filename: Annotated[str, Field(description="A file of the session, or from the upload folders")]


@tool(
    "browser_set_storage_state",
    title="Restore storage state",
    cap="storage",
    limit="navigation",
)
async def set_storage_state(call: BrowserCall, arguments: LoadState) -> None:
    """Replace all cookies and storages of the session by those of a file that browser_storage_state saved."""
    state = call.login_sites.leave_out(await _read_state(call, arguments.filename))
    if call.logins:
        raise BrowserToolFailed(
            "The session has a login, which this would end; call login_release first."
        )
    context = call.session.context
    shown_origins = {
        origin for page in context.pages if (origin := origin_of(page.url)) is not None
    }
    try:
        await context.clear_cookies()
        refused_cookies = await add_cookies(context, state.cookies)
        await call.session.origins.replace(state.origins, shown_origins=shown_origins)
    except (errors.Error, WorldError) as error:
        raise BrowserToolFailed(
            f"{arguments.filename} was not restored: {describe_error(error)}"
        ) from None
    call.answer.result(f"Storage state restored from {arguments.filename}")
    if refused_cookies:
        call.answer.result(f"Not taken from it: {plural(refused_cookies, 'cookie')}")
    call.answer.code(f"await page.context.set_storage_state({arguments.filename!r})")


async def _read_state(call: BrowserCall, name: str) -> ContextSnapshot:
    """Return the cookies and origins of a saved state.

    Raises:
        BrowserToolFailed: There is no such file, or it is no saved state.
    """
    try:
        content = await read_allowed(call.session, call.ctx, name)
        return await anyio.to_thread.run_sync(parse_storage_state, content)
    except OSError as error:
        raise BrowserToolFailed(f"{name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise BrowserToolFailed(f"{name} {error}.") from None


TOOLS: list[BrowserTool] = [storage_state, set_storage_state]
