"""The calls of one connection that wait for their callers to answer a question."""

from __future__ import annotations

from typing import Protocol

import anyio

from ..errors import SessionError


class AskingCall(Protocol):
    """A call whose caller is asked."""

    def end(self, error: SessionError) -> None:
        """Cancel the call, which fails with `error`."""
        ...


class OpenQuestions:
    """The calls of one connection that wait for their callers to answer. It lives as long as the connection."""

    def __init__(self) -> None:
        self._calls: dict[AskingCall, tuple[str, str, float]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def calls_of(self, session_id: str) -> list[AskingCall]:
        """Return the waiting calls of one session."""
        return [call for call, (owner, _, _) in self._calls.items() if owner == session_id]

    def open(self, call: AskingCall, session_id: str, tool: str) -> None:
        self._calls[call] = (session_id, tool, anyio.current_time())

    def close(self, call: AskingCall) -> None:
        self._calls.pop(call, None)

    def describe(self, session_id: str) -> str:
        """Return the waiting call and its waiting time, in words. Tools of another session are not named."""
        owner, tool, since = next(iter(self._calls.values()))
        caller = tool if owner == session_id else "a call of another session"
        return f"{caller} has waited {anyio.current_time() - since:.0f} seconds for its caller's answer"


__all__ = ["AskingCall", "OpenQuestions"]
