"""The pictures of a page, and the messages that viewers get about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PageCondition(StrEnum):
    """Whether the last frame is the present picture of a page, and the reason if it may not be."""

    LIVE = "live"
    STARTING = "starting"
    """The first frame has not come yet."""
    HIDDEN = "hidden"
    """The browser paints the page no more, since another window or tab covers it."""
    DIALOG = "dialog"
    """A dialog of the page waits for an answer; the page does nothing until then."""
    CHOOSER = "chooser"
    """The page waits for files. It still paints."""
    UNRESPONSIVE = "unresponsive"
    """The page does not answer: it is busy, or the dialog of another tab blocks it."""
    CRASHED = "crashed"
    CLOSED = "closed"
    """The tab, or the browser, is closed: the last update."""
    NO_PAGE = "no_page"
    """The session has no open page. Restored tabs open when they are used."""


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """A picture of the visible part of a page, with all that is needed to find a point of it on the page."""

    number: int
    """Increases with each frame of the session, whatever its tab."""
    tab: int
    """The number of the tab, as Tab.number."""
    captured_at: float
    """The time of the paint, in seconds since the epoch."""
    jpeg: bytes
    width: float
    """The width of the visible part in CSS pixels. A page that is enlarged by a pinch shows less of itself."""
    height: float
    page_scale: float
    """The factor of a pinch; 1 without one."""
    device_scale: float
    """The pixels of the emulated screen for each CSS pixel. The picture has fewer: one for each CSS pixel, or less."""
    scroll_x: float
    """CSS pixels from the left edge of the document to that of the picture."""
    scroll_y: float

    def page_point(self, across: float, down: float) -> tuple[float, float]:
        """Return the coordinates for an input event from the position in the picture, each from 0 to 1."""
        return across * self.width, down * self.height


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """A dialog or file chooser that waits for an answer. Its texts are those of the page."""

    kind: str
    """`alert`, `confirm`, `prompt`, `beforeunload` or `files`."""
    message: str = ""
    default: str = ""
    takes_several_files: bool = False


@dataclass(frozen=True, slots=True)
class ScreenUpdate:
    """A message to a viewer: a new frame, another condition, or only that the last frame is still the present picture."""

    condition: PageCondition
    tab: int | None
    """The number of the tab that is watched; None if the session has none."""
    frame: ScreenFrame | None
    """The newest frame; None if the viewer has it already."""
    current_at: float | None
    """The last time at which the newest frame was known to be the picture of the page; None without a frame."""
    question: PageQuestion | None = None

    def age(self, now: float) -> float | None:
        """Return the seconds for which it is unknown whether the newest frame is the picture of the page."""
        return None if self.current_at is None else max(0.0, now - self.current_at)
