"""The capture of one page by the screencast of DevTools, in a DevTools session of its own.

Chromium gives each DevTools session its own screencast, so the video of Playwright, which has another one, neither notices
a capture nor sets its size and quality. Playwright's own screencast takes one receiver, and tells no scroll offset.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.json_codec import JSON
from .. import errors
from ..devtools.world import send_command
from .frames import PageCondition, PageQuestion, ScreenFrame

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

    from ..session.tab import Tab
    from ..snapshot.storage_watch import ContextWatch

QUALITY: Final = 60
FRAME_SECONDS: Final = 0.1
"""The shortest time between two acknowledgements, which bounds the frames in the long run."""
LOW_FPS: Final = 2.0
"""The highest rate at which the capture stops between frames. Chromium captures each paint of a started screencast."""
MAX_SIDE: Final = 1920
"""The longest side of a picture in pixels."""
HEARTBEAT_SECONDS: Final = 2.0
"""Seconds without a frame after which the page is asked whether it still answers."""
ANSWER_SECONDS: Final = 2.0
_EVENTS: Final = ("dialog", "dialogclosed", "filechooser", "crash", "close")

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class PageCapture:
    """The frames of one page, between start() and stop(). It keeps the newest frame only.

    A page that does not change sends no frames. The capture then asks it at intervals whether it answers.
    """

    def __init__(
        self,
        tab: Tab,
        watch: ContextWatch,
        *,
        next_number: Callable[[], int],
        record_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.tab = tab
        self._watch = watch
        self.frame: ScreenFrame | None = None
        self.current_at: float | None = None
        self.beats = 0
        """The number of times that the newest frame proved to be the picture of the page."""
        self._rates: list[float] = []
        """The frames a second that each viewer wants."""
        self._rates_change = anyio.Event()
        self.turn = anyio.Lock()
        """Held while the capture starts or stops."""
        self._next_number = next_number
        self._notify_change = record_change
        self._clock = clock
        self._session: CDPSession | None = None
        self.is_started = False
        self._scope = anyio.CancelScope()
        self._is_visible = self._is_answering = True
        self._device_scale = 1.0
        self._arrival = anyio.Event()
        self._unacknowledged: JSON | None = None
        """The frame that the browser waits for, as the parameters of its acknowledgement."""
        self._is_changed = False
        """True if the newest frame differs from the one before."""

    @property
    def condition(self) -> PageCondition:
        tab = self.tab
        if tab.closed:
            return PageCondition.CLOSED
        if tab.crashed:
            return PageCondition.CRASHED
        if tab.dialog is not None:
            return PageCondition.DIALOG
        if not self._is_visible:
            return PageCondition.HIDDEN
        if not self._is_answering:
            return PageCondition.UNRESPONSIVE
        if self.frame is None:
            return PageCondition.STARTING
        return PageCondition.LIVE if tab.chooser is None else PageCondition.CHOOSER

    @property
    def question(self) -> PageQuestion | None:
        dialog, chooser = self.tab.dialog, self.tab.chooser
        if dialog is not None:
            return PageQuestion(dialog.type, dialog.message, dialog.default_value)
        if chooser is not None:
            return PageQuestion("files", takes_several_files=chooser.is_multiple())
        return None

    @property
    def has_viewers(self) -> bool:
        return bool(self._rates)

    def add_viewer(self, fps: float) -> None:
        """Add a viewer. The capture works at the highest rate of its viewers."""
        self._rates.append(fps)
        self._rates_change.set()

    def remove_viewer(self, fps: float) -> None:
        self._rates.remove(fps)

    async def start(self, spawn: Spawn) -> None:
        """Begin to capture. A page that is gone, or going, reports that as its condition."""
        page = self.tab.page
        for event in _EVENTS:
            page.on(event, self._on_page_event)  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.is_started = True
        with suppress(errors.Error):
            session = self._session = await self._watch.devtools(page)
            session.on("Page.screencastFrame", self._on_frame)
            session.on("Page.screencastVisibilityChanged", self._on_visibility)
            await self._send("Page.enable")
            if self.tab.dialog is None:
                await self._ask_device_scale()
            await self._begin()
            spawn(self._run)

    async def stop(self) -> None:
        """End the capture. Does nothing if it is not on."""
        session, self._session = self._session, None
        self._scope.cancel()
        if self.is_started:
            self.is_started = False
            for event in _EVENTS:
                self.tab.page.remove_listener(event, self._on_page_event)
        if session is None:
            return
        with suppress(Exception), anyio.move_on_after(ANSWER_SECONDS, shield=True):
            await send_command(session, "Page.stopScreencast")
        with suppress(Exception), anyio.move_on_after(ANSWER_SECONDS, shield=True):
            await self._watch.detach(self.tab.page, session)

    async def _begin(self) -> None:
        options: JSON = {"format": "jpeg", "quality": QUALITY}
        sizes: JSON = {"maxWidth": MAX_SIDE, "maxHeight": MAX_SIDE}
        # One frame at a time. The browser keeps the last picture that was painted meanwhile, and sends it next.
        pace: JSON = {"maxFramesInFlight": 1, "sendLastFrame": True}
        await self._send("Page.startScreencast", {**options, **sizes, **pace})

    async def _send(self, method: str, params: JSON | None = None) -> JSON | None:
        """Send a command and return its result; None if the page does not answer in time, which its condition shows.

        The browser passes every command on to the page, also those that it executes itself.
        """
        session, result = self._session, None
        if session is not None:
            with anyio.move_on_after(ANSWER_SECONDS):
                result = await send_command(session, method, params)
            if self._is_answering != (result is not None):
                self._is_answering = result is not None
                self._notify_change()
        return result

    def _on_frame(self, event: JSON) -> None:
        metadata = event["metadata"]
        scale = float(metadata["pageScaleFactor"])
        last, jpeg = self.frame, base64.b64decode(event["data"])
        self._is_changed = last is None or jpeg != last.jpeg
        self.frame = ScreenFrame(
            number=self._next_number(),
            tab=self.tab.number,
            captured_at=float(metadata["timestamp"]),
            jpeg=jpeg,
            width=metadata["deviceWidth"] / scale,
            height=metadata["deviceHeight"] / scale,
            page_scale=scale,
            device_scale=self._device_scale,
            scroll_x=float(metadata["scrollOffsetX"]),
            scroll_y=float(metadata["scrollOffsetY"]),
        )
        self.current_at = self._clock()
        self._is_answering = True
        self._unacknowledged = {"sessionId": event["sessionId"]}
        self._arrival.set()
        self._notify_change()

    def _on_visibility(self, event: JSON) -> None:
        self._is_visible = bool(event["visible"])
        self._notify_change()

    def _on_page_event(self, _: object) -> None:
        if self.tab.closed:
            self._scope.cancel()
        self._notify_change()

    async def _run(self) -> None:
        """Ask for the next frames, and find out without frames whether the newest one is the picture of the page."""
        # A page that is gone reports that by its event.
        with self._scope, suppress(errors.Error):
            while self._session is not None:
                with anyio.move_on_after(HEARTBEAT_SECONDS):
                    await self._arrival.wait()
                if self._arrival.is_set():
                    self._arrival = anyio.Event()
                    await (self._pause() if self._is_pause_due() else self._acknowledge())
                else:
                    await self._ask_page()

    async def _acknowledge(self) -> None:
        if self._unacknowledged is not None:
            frame, self._unacknowledged = self._unacknowledged, None
            next_at = anyio.current_time() + FRAME_SECONDS
            await self._send("Page.screencastFrameAck", frame)
            await anyio.sleep_until(next_at)

    def _is_pause_due(self) -> bool:
        """Return whether the page may paint faster than viewers want. A page that did not change is cheap to capture."""
        return self._is_changed and bool(self._rates) and max(self._rates) <= LOW_FPS

    async def _pause(self) -> None:
        """Stop the screencast until the next frame is due, or a viewer comes. Its start sends the page as it is then."""
        seconds = min(1 / max(self._rates), HEARTBEAT_SECONDS)
        self._rates_change = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._send("Page.stopScreencast")
            await self._rates_change.wait()
        # A frame that came before the stop had its effect needs no acknowledgement.
        self._arrival, self._unacknowledged = anyio.Event(), None
        await self._begin()

    async def _ask_page(self) -> None:
        asked_at = self._clock()
        if self.condition in (PageCondition.DIALOG, PageCondition.CRASHED):
            self._notify_change()
        elif await self._ask_device_scale() and self._is_visible and self.frame is not None:
            self.current_at = max(asked_at, self.current_at or 0.0)
            self.beats += 1
            self._notify_change()

    async def _ask_device_scale(self) -> bool:
        """Ask for the device scale, and return whether the page answered."""
        answer = await self._send("Runtime.evaluate", {"expression": "devicePixelRatio"})
        if answer is None:
            return False
        # The page may have redefined it.
        scale = answer["result"].get("value")
        self._device_scale = float(scale) if isinstance(scale, (int, float)) else 1.0
        return True
