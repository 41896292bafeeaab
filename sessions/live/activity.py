"""The tool calls of one session while this process owns it: those that run, and the one that ended last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class RunningCall(Protocol):
    """A call between its start and its end."""

    @property
    def service(self) -> str: ...

    @property
    def tool(self) -> str: ...

    @property
    def was_sent(self) -> bool:
        """Whether it was sent; before that it waits for a connection, or for the calls before it."""
        ...


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended. `status` is that of its journal entry; `ended_at` is in seconds since 1970."""

    service: str
    tool: str
    status: str
    ended_at: float


class CallActivity:
    """Counts the calls of one session. It lives as long as the session is open in this process; nothing of it is stored."""

    __slots__ = ("ended", "last", "running")

    def __init__(self) -> None:
        self.running: dict[RunningCall, float] = {}
        """The calls that run, with the second since 1970 at which each started."""
        self.ended = 0
        """Calls that have ended, with any outcome."""
        self.last: EndedCall | None = None

    def begin(self, call: RunningCall, started_at: float) -> None:
        self.running[call] = started_at

    def end(self, call: RunningCall, status: str, ended_at: float) -> None:
        """Count a call as ended. A call that did not begin is ignored."""
        if self.running.pop(call, None) is not None:
            self.ended += 1
            self.last = EndedCall(call.service, call.tool, status, ended_at)


__all__ = ["CallActivity", "EndedCall", "RunningCall"]
