"""The state of the screen: the sessions, the selected one, the filter, a question, and what the keys do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from .sample import Sample, SessionRow

MESSAGE_SECONDS: Final = 10.0
ACTIONS: Final = {"p": "pause", "r": "resume", "c": "close"}


@dataclass(frozen=True, slots=True)
class ScreenRequest:
    """An action that the user asks for: `pause`, `resume`, `close`, `open` or `quit`."""

    action: str
    row: SessionRow | None = None


@dataclass(slots=True)
class View:
    """Changes by update(), press() and say(); draws nothing."""

    sample: Sample
    rates: dict[str, float] = field(default_factory=dict[str, float])
    selected: str | None = None
    """The id of the selected session."""
    pattern: str = ""
    """Only sessions with this text in name, id, owner, status or services are shown."""
    is_typing: bool = False
    """Whether the keys are those of the filter."""
    asked: SessionRow | None = None
    """The session whose end has to be confirmed."""
    message: str = ""
    message_at: float = 0.0
    page: int = 10
    """Rows that the screen has."""
    _position: int = 0

    @property
    def rows(self) -> list[SessionRow]:
        """The sessions that are shown."""
        wanted = self.pattern.lower()
        return [row for row in self.sample.rows if wanted in _text(row)]

    @property
    def row(self) -> SessionRow | None:
        """The selected session, None if none is shown."""
        rows = self.rows
        return next((row for row in rows if row.id == self.selected), rows[0] if rows else None)

    def update(self, sample: Sample, rates: dict[str, float]) -> None:
        """Show another sample. The selection stays at its session, or at its place when the session is gone."""
        self.sample, self.rates = sample, rates
        self._select_shown()

    def say(self, message: str, at: float) -> None:
        """Show a message for a while. `at` is a monotonic time in seconds."""
        self.message, self.message_at = message, at

    def current_message(self, at: float) -> str:
        return self.message if at - self.message_at < MESSAGE_SECONDS else ""

    def press(self, key: str) -> ScreenRequest | None:
        """Take in one key: a character or a name such as `up`. Return the action that it asks for, if any."""
        if self.asked is not None:
            row, self.asked = self.asked, None
            return ScreenRequest("close", row) if key in ("y", "Y") else None
        if self.is_typing:
            self._type(key)
            return None
        self.message = ""
        row = self.row
        match key:
            case "q":
                return ScreenRequest("quit")
            case "/":
                self.is_typing = True
            case "escape":
                self.pattern = ""
                self._select_shown()
            case "c":
                self.asked = row
            case "p" | "r" if row is not None:
                return ScreenRequest(ACTIONS[key], row)
            case "o" if row is not None:
                return ScreenRequest("open", row)
            case _:
                self._move(key)
        return None

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
        if key == "escape":
            self.pattern = ""
        elif key == "backspace":
            self.pattern = self.pattern[:-1]
        elif len(key) == 1:
            self.pattern += key
        self._select_shown()

    def _move(self, key: str) -> None:
        rows = self.rows
        steps = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page up": -self.page,
            "page down": self.page,
            "home": -len(rows),
            "end": len(rows),
        }
        if rows:
            self._position = max(0, min(self._position + steps.get(key, 0), len(rows) - 1))
            self.selected = rows[self._position].id

    def _select_shown(self) -> None:
        rows = self.rows
        ids = [row.id for row in rows]
        if self.selected in ids:
            self._position = ids.index(self.selected)
        elif ids:
            self._position = min(self._position, len(ids) - 1)
            self.selected = ids[self._position]

    def window(self, size: int) -> Sequence[SessionRow]:
        """Return the rows that fit into a screen of `size` rows, the selected one among them."""
        self.page = max(1, size)
        rows = self.rows
        first = max(0, min(self._position - self.page // 2, len(rows) - self.page))
        return rows[first : first + self.page]


def _text(row: SessionRow) -> str:
    services = " ".join(service.name for service in row.services)
    return f"{row.name} {row.id} {row.owner} {row.status} {services}".lower()
