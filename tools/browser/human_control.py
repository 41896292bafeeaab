"""A person's control of one browser session: nothing of that time is recorded, and its changes are told afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...sessions.errors import ServiceUnavailable
from .answers.answer import ADDRESS, to_line
from .errors import BrowserToolFailed

if TYPE_CHECKING:
    from .session.session import BrowserSession

logger = logging.getLogger("statehold.browser")

LISTED: Final = 5
"""Addresses, and files, that are named; of more only the number is told."""


class HumanControl:
    """The control of one session's browser by a person, on or off. It lives as long as the session."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._before: tuple[Sequence[str], str, set[str]] | None = None
        """The addresses of the tabs, that of the current one, and the names of the files, when the person took control."""

    async def begin(self) -> None:
        """End the recordings of the session, and note what shows. A second call does nothing.

        Raises:
            ServiceUnavailable: a recording could not be ended.
        """
        if self._before is not None:
            return
        session = self._session
        await self._end_recordings()
        names = set(await session.files.names())
        self._before = self._addresses(), self._current_address(), names

    async def end(self) -> list[str]:
        """Forget what the pages reported meanwhile, and return the changes as sentences. Does nothing when it is off."""
        if self._before is None:
            return []
        session = self._session
        (addresses, current, names), self._before = self._before, None
        session.forget_events()
        changes = [
            *self._describe_tabs(addresses, current),
            *_describe_files(sorted(set(await session.files.names()) - names)),
        ]
        return [*changes, "Refs of earlier snapshots are invalid: look at the page again."]

    async def _end_recordings(self) -> None:
        session = self._session
        try:
            if session.trace.pause_hold.is_active:
                name, _ = await session.trace.stop()
                session.add_event(f"The trace ended when a person took control: {name}")
            if session.videos.pause_hold.is_active:
                names = [name for name, _ in await session.videos.stop()]
                session.add_event(f"The video ended when a person took control: {', '.join(names)}")
            if session.recorder.pause_hold.is_active:
                await session.recorder.stop()
                session.add_event("The recording of steps ended when a person took control.")
        except BrowserToolFailed as error:
            raise ServiceUnavailable(str(error)) from None

    def _addresses(self) -> list[str]:
        return [entry.url for entry in self._session.tabs.entries]

    def _current_address(self) -> str:
        tab = self._session.tabs.current
        return "" if tab is None else tab.url

    def _describe_tabs(self, before: Sequence[str], current_before: str) -> list[str]:
        current, after = self._current_address(), self._addresses()
        show = self._show_address
        sentences: list[str] = []
        if current != current_before:
            sentences.append(f"The current page was {show(current_before)} and is {show(current)}.")
        opened = [url for url in after if url not in before and url != current]
        if len(after) != len(before):
            sentences.append(f"There are {len(after)} tabs; there were {len(before)}.")
        if opened:
            more = f" and {len(opened) - LISTED} more" if len(opened) > LISTED else ""
            sentences.append(f"New pages: {', '.join(map(show, opened[:LISTED]))}{more}.")
        return sentences or ["The tabs are at the same addresses."]

    def _show_address(self, url: str) -> str:
        return to_line(self._session.secrets.named.mask(url), ADDRESS) or "none"


def _describe_files(new_names: Sequence[str]) -> list[str]:
    if not new_names:
        return []
    more = f" and {len(new_names) - LISTED} more" if len(new_names) > LISTED else ""
    return [f"New files: {', '.join(new_names[:LISTED])}{more}."]


__all__ = ["HumanControl"]
