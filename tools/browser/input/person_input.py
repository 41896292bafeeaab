"""Everything that a person does in a session's browser while the control lease is theirs."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from ....sessions.errors import ControlRefused
from .. import errors
from ..devtools.world import WorldError
from ..errors import BrowserToolFailed, describe_error
from .answers import answer_chooser, answer_dialog
from .choice_fields import ChoiceFields
from .edited_fields import EditedFields
from .events import (
    AddressInput,
    AnyInput,
    ChoiceField,
    CompositionInput,
    CopyInput,
    DialogInput,
    DropInput,
    FieldInput,
    FilesInput,
    HistoryInput,
    InputBatch,
    InputGrant,
    InputOutcome,
    KeyInput,
    MouseInput,
    PasteInput,
    SizeInput,
    TabInput,
    TextInput,
    TouchInput,
)
from .page_devices import EVENT_SECONDS, PageDevices
from .points import drop_files
from .selected_text import selected_text, send_paste_event, takes_text
from .tab_history import change_tabs, move_in_history, open_address
from .typed_text import TypedText, is_edit, may_leave

if TYPE_CHECKING:
    from playwright.async_api import ViewportSize

    from ..session.session import BrowserSession
    from ..session.tab import Tab

logger = logging.getLogger("statehold.browser")

CLOSE_SECONDS: Final = 5.0
EDITING_SECONDS: Final = 1.0
"""Seconds in which a page tells about its focus and its copies."""
TAP_FRAMES: Final = 3
_ENDED: Final = "This control of the session has ended."


class PersonInput:
    """The input of a person from begin to end of their control. Batches run one after the other, in order of their arrival.

    Nothing of it is recorded. aclose() waits for the event under way, refuses the rest, and releases buttons and keys.
    """

    def __init__(self, session: BrowserSession) -> None:
        self._session = session
        self._turn = anyio.Lock()
        self._devices: dict[Tab, PageDevices] = {}
        self._typed = TypedText(session.secrets.hide)
        self._fields = EditedFields(session)
        self._choices = ChoiceFields(session)
        self._field: ChoiceField | None = None
        """The field that the events of the batch opened."""
        self._sizes: dict[Tab, ViewportSize] = {}
        """The sizes of the tabs to which the person gave another."""
        self._edited: Tab | None = None
        """The tab that the person has edited since the last event that may leave a field."""
        self._is_closed = False
        self._last_number = -1
        """The largest number of a batch so far."""

    def record_unknown_edits(self) -> None:
        """Count all texts that stand in fields now as the person's."""
        self._fields.add_all()

    async def send(self, batch: InputBatch, grant: InputGrant) -> InputOutcome:
        """Do what a person did, and return what was copied and refused.

        Raises:
            ControlRefused: The control is not the person's, or no longer; the events that remained did nothing.
        """
        self._require(grant, batch)
        copied: str | None = None
        refusals: list[str] = []
        editing: bool | None = None
        async with self._turn:
            if batch.number is not None:
                if batch.number <= self._last_number:
                    return InputOutcome()
                self._last_number = batch.number
            self._field = None
            for event in batch.events:
                self._require(grant, batch)
                try:
                    if isinstance(event, CopyInput):
                        copied = await self._copy(batch)
                    else:
                        copied = await self._act(event, batch) or copied
                except BrowserToolFailed as error:
                    refusals.append(str(error))
            if not self._is_closed and (refusal := await self._session.leave_forbidden_pages()):
                refusals.append(refusal)
            if any(isinstance(e, TouchInput) and e.action == "end" for e in batch.events):
                editing = await self._is_editing(batch)
            field, self._field = self._field, None
        return InputOutcome(copied, tuple(refusals), editing, field)

    def _require(self, grant: InputGrant, batch: InputBatch) -> None:
        grant.require(batch.epoch)
        if self._is_closed:
            raise ControlRefused(_ENDED)

    async def aclose(self) -> None:
        """End the input within CLOSE_SECONDS. A second call does nothing."""
        self._is_closed = True
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            async with self._turn:
                self._typed.end()
                await self._fields.end()
                for tab, size in self._sizes.items():
                    with suppress(Exception):
                        await tab.page.set_viewport_size(size)
                while self._devices:
                    _, devices = self._devices.popitem()
                    await devices.aclose()

    async def _tab(self, batch: InputBatch) -> Tab:
        if batch.tab is None:
            # Not session.current(), which replaces a crashed page: its address would be lost to a reload.
            return self._session.tabs.current or await self._session.current()
        for tab in self._session.tabs:
            if tab.number == batch.tab:
                return tab
        raise BrowserToolFailed("The tab of the picture is closed.")

    async def _act(self, event: AnyInput, batch: InputBatch) -> str | None:
        """Do what a person did, and return the text that the page copied by it."""
        session = self._session
        if session.clipboard is not None:
            session.clipboard.record_action()
        try:
            if self._edited is not None and may_leave(event):
                await self._fields.leave(self._edited)
                self._edited = None
            if isinstance(event, TabInput):
                await change_tabs(session, event)
                return None
            tab = await self._tab(batch)
            if is_edit(event):
                await self._fields.begin(tab)
                self._edited = tab
            self._typed.note(event, tab)
            if isinstance(event, DialogInput):
                await answer_dialog(session, tab, event)
            elif isinstance(event, FilesInput):
                await answer_chooser(session, tab, event)
            elif isinstance(event, AddressInput):
                await open_address(session, tab, event.address)
            elif isinstance(event, SizeInput):
                await self._resize(event, tab)
            elif isinstance(event, HistoryInput):
                await move_in_history(session, tab, event)
            elif session.clipboard is not None and (frames := _frames_to_click(event)) is not None:
                texts = await self._click(event, tab, frames)
                if texts:
                    session.clipboard.copy(texts)
                    return texts.get("text/plain")
            else:
                await self._act_on_page(event, tab)
            return None
        except errors.Error as error:
            # The page may be gone by the event itself.
            raise BrowserToolFailed(describe_error(error)) from None

    async def _click(self, event: AnyInput, tab: Tab, frames: int) -> dict[str, str] | None:
        """Let the page handle an event, and return the texts that it copied: it may not use the clipboard of the browser."""
        watch = self._session.watch
        if tab.dialog is None and not tab.crashed:
            with anyio.move_on_after(EDITING_SECONDS), suppress(errors.Error, WorldError):
                await tab.activity.begin(await watch.world(tab.page))
        await self._act_on_page(event, tab)
        if not (tab.modal.is_set() or tab.closed or tab.crashed):
            with anyio.move_on_after(EDITING_SECONDS), suppress(errors.Error, WorldError):
                return await tab.activity.copied(await watch.world(tab.page), frames)
        return None

    async def _act_on_page(self, event: AnyInput, tab: Tab) -> None:
        if tab.dialog is not None or tab.crashed:
            raise BrowserToolFailed("The page has crashed." if tab.crashed else "A dialog is open.")
        self._field = await self._choices.open(tab, event) or self._field
        devices = await self._devices_of(tab)
        if isinstance(event, MouseInput):
            await devices.mouse(event)
        elif isinstance(event, TouchInput):
            await devices.touch(event)
        elif isinstance(event, KeyInput):
            await devices.key(event)
        elif isinstance(event, TextInput):
            await devices.text(event)
        elif isinstance(event, CompositionInput):
            await devices.compose(event)
        elif isinstance(event, FieldInput):
            await self._choices.choose(event)
        elif isinstance(event, DropInput):
            with anyio.move_on_after(EVENT_SECONDS):
                if not await drop_files(tab.page, (event.x, event.y), event.uploads):
                    raise BrowserToolFailed("The page takes no file there.")
        elif isinstance(event, PasteInput):
            is_unhandled = False
            with anyio.move_on_after(EVENT_SECONDS):
                is_unhandled = await send_paste_event(tab.page, event)
            if is_unhandled and event.text:
                await devices.text(TextInput(type="text", text=event.text))
            elif is_unhandled:
                raise BrowserToolFailed("The page takes no picture there.")

    async def _resize(self, event: SizeInput, tab: Tab) -> None:
        size = tab.page.viewport_size
        if size is None:
            raise BrowserToolFailed("The page has the size of its own window.")
        self._sizes.setdefault(tab, size)
        with anyio.move_on_after(EVENT_SECONDS):
            await tab.page.set_viewport_size({"width": event.width, "height": event.height})

    async def _copy(self, batch: InputBatch) -> str:
        tab = await self._tab(batch)
        try:
            with anyio.move_on_after(EVENT_SECONDS):
                return await selected_text(tab.page)
        except errors.Error as error:
            raise BrowserToolFailed(describe_error(error)) from None
        raise BrowserToolFailed("The page does not answer.")

    async def _is_editing(self, batch: InputBatch) -> bool | None:
        with anyio.move_on_after(EDITING_SECONDS), suppress(errors.Error, BrowserToolFailed):
            tab = await self._tab(batch)
            if tab.dialog is None and not tab.crashed:
                return await takes_text(tab.page)
        return None

    async def _devices_of(self, tab: Tab) -> PageDevices:
        self._devices = {each: one for each, one in self._devices.items() if not each.closed}
        devices = self._devices.get(tab)
        if devices is None:
            devices = PageDevices(self._session, tab)
            await devices.open()
            self._devices[tab] = devices
        return devices


def _frames_to_click(event: AnyInput) -> int | None:
    """Return after how many frames of the page an event has become a click; None if it becomes none."""
    if isinstance(event, TouchInput):
        return TAP_FRAMES if event.action == "end" else None
    if isinstance(event, MouseInput):
        return 0 if event.action == "up" and event.button == "left" else None
    return 0 if isinstance(event, KeyInput) and event.key in ("Enter", " ") else None
