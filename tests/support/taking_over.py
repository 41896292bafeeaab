"""A person in tests: looks at the live picture, and acts on what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio

from statehold.sessions.errors import ControlRefused
from statehold.tools.browser.connection import BrowserConnection
from statehold.tools.browser.input.events import InputBatch, InputOutcome
from statehold.tools.browser.screencast.frames import ScreenFrame
from statehold.tools.browser.screencast.screencast import ScreenViewer
from support.pixels import Pixels


@dataclass
class Epoch:
    """A grant for one epoch."""

    epoch: int = 1

    def require(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ControlRefused("This control of the session has ended.")


class Person:
    """A person with control of a browser."""

    def __init__(self, connection: BrowserConnection) -> None:
        self.connection = connection
        self.grant = Epoch()

    async def act(
        self, *events: dict[str, Any], epoch: int = 1, tab: int | None = None
    ) -> InputOutcome:
        """Send events, as a viewer writes them, in one batch."""
        batch = InputBatch.model_validate({"epoch": epoch, "tab": tab, "events": list(events)})
        return await self.connection.human_control.send(batch, self.grant)

    async def click(self, x: float, y: float, **more: Any) -> InputOutcome:
        return await self.act(*click(x, y, **more))

    async def type(self, text: str) -> None:
        await self.act(*(event for letter in text for event in press(letter)))

    async def click_color(
        self, viewer: ScreenViewer, color: tuple[int, int, int], pixels: Pixels
    ) -> ScreenFrame:
        """Click on the middle of all that has a colour in the newest picture that shows it, again if the page had moved."""
        with anyio.fail_after(15):
            async for update in viewer:
                frame = update.frame
                place = None if frame is None else await pixels.find(frame.jpeg, color)
                if frame is not None and place is not None:
                    x, y = frame.page_point(*place)
                    seen = {"scroll_x": frame.scroll_x, "scroll_y": frame.scroll_y}
                    if not (await self.act(*click(x, y, **seen), tab=frame.tab)).refusals:
                        return frame
        raise AssertionError("the updates ended")


def click(x: float, y: float, **more: Any) -> list[dict[str, Any]]:
    place = {"type": "mouse", "x": x, "y": y}
    button = {"button": "left", **more}
    return [
        {**place, "action": "move"},
        *({**place, **button, "action": a} for a in ("down", "up")),
    ]


def press(key: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "key", "action": action, "key": key, **more} for action in ("down", "up")]


__all__ = ["Person", "click", "press"]
