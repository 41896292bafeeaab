"""Answers to the dialogs and file choosers of a page."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import anyio
from pydantic import Field

from .. import errors
from ..call import BrowserCall
from ..devtools.world import origin_of
from ..errors import BrowserToolFailed, describe_error
from ..session.uploads import allowed_folder, allowed_paths, upload_folders
from ..tool import BrowserArguments, BrowserTool, tool

if TYPE_CHECKING:
    from playwright.async_api import FileChooser

    from ..session.tab import Tab

ANSWER_SECONDS: Final = 1.0


class HandleDialog(BrowserArguments):
    may_be_empty = ("prompt_text",)

    accept: Annotated[bool, Field(description="As with OK; false as with Cancel")]
    prompt_text: Annotated[
        str | None, Field(alias="promptText", description="The text for a prompt")
    ] = None


@tool("browser_handle_dialog", title="Handle a dialog", answers="dialog")
async def handle_dialog(call: BrowserCall, arguments: HandleDialog) -> None:
    """Accept or dismiss the dialog that the page opened; what waited for it goes on."""
    tab = await call.tab()
    dialog = tab.dialog
    if dialog is None:
        raise BrowserToolFailed("No dialog is open.")
    # Only a prompt takes a text.
    text = arguments.prompt_text if dialog.type == "prompt" else None
    if text is not None:
        text = _insert_secrets(call, tab, text)
    answer = partial(dialog.accept, text) if arguments.accept else dialog.dismiss
    call.facts.dialogs.append(dialog.message)
    await call.act(answer, snapshot=False, edits=False, answers=True)
    call.shows_page = True


def _insert_secrets(call: BrowserCall, tab: Tab, text: str) -> str:
    """Return the text for a prompt with the values of named secrets.

    Raises:
        BrowserToolFailed: A secret is not for all sites with a frame in the page: each of them may have opened the prompt.
    """
    named = call.session.secrets.named
    urls = [frame.url for frame in tab.page.frames if origin_of(frame.url)]
    texts = {named.insert(text, url, is_typed=True) for url in (tab.page.url, *urls)}
    if len(texts) > 1:
        raise BrowserToolFailed(
            "Frames of several sites may have asked, and the secret differs between them. Nothing was put in."
        )
    return texts.pop()


class FileUpload(BrowserArguments):
    paths: Annotated[
        list[str] | None,
        Field(
            description="Files of the session (by name or URI), or from the upload folders; or one folder of those"
        ),
    ] = None


@tool("browser_file_upload", title="Upload files", answers="chooser")
async def file_upload(call: BrowserCall, arguments: FileUpload) -> None:
    """Give files to the file chooser that the page opened; without paths, cancel it."""
    tab = await call.tab()
    chooser = tab.chooser
    if chooser is None:
        raise BrowserToolFailed("No file chooser is open; first click on what opens it.")
    names = arguments.paths or []
    folders = await upload_folders(call.session, call.ctx, names)
    folder = await allowed_folder(call.session, names, folders)
    paths = await allowed_paths(call.session, names, folders) if folder is None else folder
    if len(names) > 1 and not chooser.is_multiple():
        raise BrowserToolFailed("This file chooser takes one file.")
    tab.clear_modal()
    if not names:
        await call.act(_nothing, at_once=True)
    else:
        try:
            await call.act(lambda: chooser.set_files(paths, timeout=call.timeout))
        except (errors.Error, BrowserToolFailed) as error:
            if await _is_waiting(chooser):
                tab.reopen_chooser(chooser)
            raise BrowserToolFailed(f"The files were not taken: {describe_error(error)}") from None
    call.answer.code(f"await file_chooser.set_files({names!r})")


async def _is_waiting(chooser: FileChooser) -> bool:
    """Return whether the document that opened the file chooser is still there."""
    with suppress(Exception), anyio.move_on_after(ANSWER_SECONDS):
        await chooser.element.evaluate("1")
        return True
    return False


async def _nothing() -> None:
    """Do nothing: a file chooser without an answer counts as cancelled."""


TOOLS: list[BrowserTool] = [handle_dialog, file_upload]
