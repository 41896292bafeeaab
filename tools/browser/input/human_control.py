"""A person's control of one browser session: nothing of that time is recorded, and its changes are told afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

from ....sessions.errors import ServiceUnavailable
from ....sessions.one_line import cut_line
from ..answers.answer import ADDRESS
from ..errors import BrowserToolFailed, describe_error
from ..secrets.session_secrets import IS_SECRET

if TYPE_CHECKING:
    from playwright.async_api import Frame

    from ..session.session import BrowserSession
    from .events import InputBatch, InputGrant, InputOutcome
    from .person_input import PersonInput

logger = logging.getLogger("statehold.browser")

READ_SECONDS: Final = 2.0
"""Seconds that a frame gets to say what stands in its secret fields."""
_FIELDS: Final = "input, textarea, [contenteditable]"
_SECRET_TEXTS: Final = f"""elements => elements.filter({IS_SECRET}).map(
  element => String(element.value ?? element.textContent).slice(0, 1000))"""
PUT_BACK_SECONDS: Final = 3.0
MAX_LISTED: Final = 5
"""Addresses, and files, that are named; of more only the number is told."""


class Shown(NamedTuple):
    """The pages of a session: the addresses of its tabs, and that of the current one."""

    addresses: Sequence[str]
    current: str


class HumanControl:
    """The control of one session's browser by a person, on or off. It lives as long as the session."""

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._before: tuple[Shown, set[str]] | None = None
        """The pages, and the names of the files, when the person took control."""
        self._input: PersonInput | None = None

    @property
    def is_on(self) -> bool:
        return self._before is not None

    async def begin(self) -> None:
        """End the recordings of the session, and note what shows. A second call does nothing.

        Raises:
            ServiceUnavailable: a recording could not be ended.
        """
        if self._before is not None:
            return
        session = self._session
        await self._end_recordings()
        try:
            await session.mocks.lift()
            await session.offline.lift()
        except Exception as error:
            raise ServiceUnavailable(
                f"The routes of the agent stay: {describe_error(error)}"
            ) from None
        names = set(await session.files.names())
        from .person_input import PersonInput

        self._before = self._shown(), names
        self._input = PersonInput(session)
        if session.secrets.may_be_typed:
            # The person had control of these pages in a process that ended.
            self._input.record_unknown_edits()
        session.secrets.may_be_typed = True

    async def send(self, batch: InputBatch, grant: InputGrant) -> InputOutcome:
        """Do in the browser what the person did. Nothing of it is recorded.

        Raises:
            ControlRefused: No person has control, or another one by now. The events that remained did nothing.
            ServiceUnavailable: The browser has just been opened, and is not handed over yet.
        """
        grant.require(batch.epoch)
        if self._input is None:
            raise ServiceUnavailable("The browser of the session has not been handed over.")
        return await self._input.send(batch, grant)

    async def end(self) -> list[str]:
        """Forget what the pages reported meanwhile, and return the changes as sentences. Does nothing when it is off."""
        if self._before is None:
            return []
        session = self._session
        if self._input is not None:
            await self._input.aclose()
        (before, names), self._before, self._input = self._before, None, None
        session.secrets.may_be_typed = False
        session.forget_events()
        await self._hide_secret_fields()
        again = await self._put_back()
        changes = [
            *self._describe_tabs(before, self._shown()),
            *self._describe_files(sorted(set(await session.files.names()) - names)),
        ]
        return [*changes, *again, "Refs of earlier snapshots are invalid: look at the page again."]

    async def _end_recordings(self) -> None:
        session = self._session
        try:
            if session.trace.pause_hold.is_active:
                name, _ = await session.trace.stop()
                session.add_event(f"The trace ended when a person took control: {name}")
            if session.videos.pause_hold.is_active:
                names = [name for name, _ in await session.videos.stop()]
                session.add_event(f"The video ended when a person took control: {', '.join(names)}")
        except BrowserToolFailed as error:
            raise ServiceUnavailable(str(error)) from None

    async def _put_back(self) -> list[str]:
        """Put the routes and the offline state of the agent back, which are no part of the person's browser."""
        session = self._session
        parts = [str(session.mocks)] if len(session.mocks) else []
        parts += [session.offline.pause_hold.what] if session.offline.on else []
        if not parts:
            return []
        with anyio.move_on_after(PUT_BACK_SECONDS), suppress(Exception):
            await session.mocks.put_back()
            await session.offline.put_back()
            return [f"In force again: {', '.join(parts)}."]
        return [f"Not in force any more: {', '.join(parts)}."]

    async def _hide_secret_fields(self) -> None:
        """Hide the texts that stand in secret fields, as if the agent had typed them."""

        async def read(frame: Frame) -> None:
            with anyio.move_on_after(READ_SECONDS), suppress(Exception):
                for text in await frame.locator(_FIELDS).evaluate_all(_SECRET_TEXTS):
                    self._session.secrets.hide(str(text))

        async with anyio.create_task_group() as tasks:
            for tab in self._session.tabs:
                if tab.modal_text is None and not tab.crashed:
                    for frame in tab.page.frames:
                        tasks.start_soon(read, frame)

    def _shown(self) -> Shown:
        tabs = self._session.tabs
        addresses = [entry.url for entry in tabs.entries]
        return Shown(addresses, "" if tabs.current is None else tabs.current.url)

    def _describe_tabs(self, before: Shown, after: Shown) -> list[str]:
        show = self._show_address
        sentences: list[str] = []
        if after.current != before.current:
            sentences.append(
                f"The current page was {show(before.current)} and is {show(after.current)}."
            )
        if len(after.addresses) != len(before.addresses):
            sentences.append(
                f"There are {len(after.addresses)} tabs; there were {len(before.addresses)}."
            )
        opened = [url for url in after.addresses if url not in (*before.addresses, after.current)]
        if opened:
            more = f" and {len(opened) - MAX_LISTED} more" if len(opened) > MAX_LISTED else ""
            sentences.append(f"New pages: {', '.join(map(show, opened[:MAX_LISTED]))}{more}.")
        return sentences or ["The tabs are at the same addresses."]

    def _show_address(self, url: str) -> str:
        return cut_line(self._session.secrets.named.mask(url), ADDRESS) or "none"

    def _describe_files(self, new_names: Sequence[str]) -> list[str]:
        if not new_names:
            return []
        more = f" and {len(new_names) - MAX_LISTED} more" if len(new_names) > MAX_LISTED else ""
        names = map(self._session.secrets.named.mask_name, new_names[:MAX_LISTED])
        return [f"New files: {', '.join(names)}{more}."]
