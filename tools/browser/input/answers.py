"""A person's answers to the dialogs and file choosers of a page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from .. import errors
from ..errors import BrowserToolFailed, describe_error
from ..session.uploads import allowed_paths
from .events import DialogInput, FilesInput

if TYPE_CHECKING:
    from ..session.session import BrowserSession
    from ..session.tab import Tab

ANSWER_SECONDS: Final = 5.0


async def answer_dialog(session: BrowserSession, tab: Tab, answer: DialogInput) -> None:
    """Accept or dismiss the dialog that a tab has open.

    Raises:
        BrowserToolFailed: It has none.
        playwright's Error: The page is gone.
    """
    dialog = tab.dialog
    if dialog is None:
        raise BrowserToolFailed("No dialog is open.")
    # Only a prompt takes a text.
    text = answer.text if dialog.type == "prompt" else None
    act = partial(dialog.accept, text) if answer.accept else dialog.dismiss
    with anyio.move_on_after(ANSWER_SECONDS):
        await session.run_until_modal(tab, act, answers=True)


async def answer_chooser(session: BrowserSession, tab: Tab, answer: FilesInput) -> None:
    """Give files to the file chooser that a tab has open, or cancel it.

    Raises:
        BrowserToolFailed: It has none, or the files may not be uploaded or are not taken.
    """
    chooser = tab.chooser
    if chooser is None:
        raise BrowserToolFailed("No file chooser is open.")
    if answer.names and answer.uploads:
        raise BrowserToolFailed("Give files of the session, or files to upload, not both.")
    paths = await allowed_paths(session, list(answer.names), [])
    if len(answer.names) + len(answer.uploads) > 1 and not chooser.is_multiple():
        raise BrowserToolFailed("This file chooser takes one file.")
    tab.clear_modal()
    files: Any = paths or [
        {"name": file.name, "mimeType": file.media_type, "buffer": file.content}
        for file in answer.uploads
    ]
    if not files:
        return
    set_files = partial(chooser.set_files, files, timeout=ANSWER_SECONDS * 1000)
    try:
        await session.run_until_modal(tab, set_files)
    except errors.Error as error:
        tab.reopen_chooser(chooser)
        raise BrowserToolFailed(f"The files were not taken: {describe_error(error)}") from None
