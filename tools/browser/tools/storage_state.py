"""All cookies and storages of the session at once, as a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field

from ..call import Call, named
from ..session.failures import ToolFailed, in_words
from ..snapshot.world import WorldError
from ..tool import BrowserArguments, BrowserTool, Filename, tool

if TYPE_CHECKING:
    from playwright.async_api import StorageState


class SaveState(BrowserArguments):
    filename: Filename = None


@tool(
    "browser_storage_state",
    title="Save storage state",
    cap="storage",
    read_only=True,
    limit="navigation",
)
async def storage_state(call: Call, given: SaveState) -> None:
    """Save cookies, local storage and IndexedDB of all sites into a file of the session, which holds its logins."""
    from playwright.async_api import Error

    context = call.session.context
    try:
        # The storage of sleeping origins is not in the browser yet.
        await call.session.origins.wake_all()
    except (Error, WorldError) as error:
        raise ToolFailed(f"The storage of sites is not back yet: {in_words(error)}") from None
    try:
        state, code = await context.storage_state(indexed_db=True), "indexed_db=True"
    except Error as error:
        # Some sites store values in IndexedDB that cannot be exported, such as non-extractable keys.
        call.answer.result(f"IndexedDB is not among it: {in_words(error)}")
        state, code = await context.storage_state(), ""
    # json.dumps() escapes non-ASCII by default: packed data may contain lone surrogates, which UTF-8 cannot encode.
    data = json.dumps(state, indent=2).encode()
    name = named(given.filename, "storage-state.json")
    await call.keep(name, data, label="Storage state")
    call.answer.code(f"await page.context.storage_state({code})")


class LoadState(BrowserArguments):
    filename: Annotated[str, Field(description="A file of the session, as it was saved")]


@tool(
    "browser_set_storage_state",
    title="Restore storage state",
    cap="storage",
    limit="navigation",
)
async def set_storage_state(call: Call, given: LoadState) -> None:
    """Replace all cookies and storages of the session by those of a file that browser_storage_state saved."""
    from playwright.async_api import Error

    state = await _read(call, given.filename)
    origins = call.session.origins
    try:
        await call.session.context.set_storage_state(cast("StorageState", state))
    except Error as error:
        raise ToolFailed(f"{given.filename} was not restored: {in_words(error)}") from None
    await origins.forget()
    # Mark the origins as changed; those without an open page would otherwise not be saved.
    origins.watch.touched.update(str(each["origin"]) for each in state["origins"])
    call.answer.result(f"Storage state restored from {given.filename}")
    call.answer.code(f"await page.context.set_storage_state({given.filename!r})")


async def _read(call: Call, name: str) -> dict[str, Any]:
    """Return a saved state.

    Raises:
        ToolFailed: There is no such file of the session, or it is no saved state.
    """
    files = call.session.files
    try:
        data, _ = await files.read(files.uri(files.name_of(name)))
    except FileNotFoundError:
        known = ", ".join(await files.names()) or "none"
        raise ToolFailed(f"The session has no file {name!r}; it has: {known}.") from None
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        raise ToolFailed(f"{name} is no JSON, so it is no saved storage state.") from None
    state = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not all(isinstance(state.get(part), list) for part in ("cookies", "origins")):
        raise ToolFailed(f"{name} is no saved storage state: it has no lists cookies and origins.")
    return state


TOOLS: list[BrowserTool] = [storage_state, set_storage_state]
