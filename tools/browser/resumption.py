"""How the context of a session outlives this process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...sessions.errors import OutcomeUnknown
from ...sessions.services import CallContext, ToolResult
from .snapshot.adoption import ContextFile, ContextPlace, ContextRecord

if TYPE_CHECKING:
    from .session.session import BrowserSession

logger = logging.getLogger("statehold.browser")


class ContextResumption:
    """The Resumption of one connection, see sessions/services.py: the place of its context, and a file about its tabs.

    It knows no calls: a page does not tell whether one ran.
    """

    def __init__(self, place: ContextPlace, file: ContextFile) -> None:
        self.token = place.to_token()
        self.is_left = False
        """Whether the context stays as it is when the connection closes, because another process has it."""
        self._file = file

    def leave(self) -> None:
        self.is_left = True

    async def keep(self, seconds: float) -> None:
        """Do nothing: no call of a page outlives its process."""

    def was_sent(self, operation_id: str) -> bool | None:
        return None

    answered_questions = 0
    keeps_calls = False

    def begin(self, operation_id: str, ctx: CallContext) -> Callable[[], Awaitable[ToolResult]]:
        raise OutcomeUnknown("The server ended during the call.")

    def ask_again(self) -> None:
        """Do nothing: a page asks nothing."""

    async def follow(self, task: str, ctx: CallContext) -> ToolResult:
        raise OutcomeUnknown("The server ended during the call.")

    def record(self, session: BrowserSession) -> None:
        """Record what neither the browser nor the snapshot of a session holds. A failure is logged."""
        try:
            self._file.write(ContextRecord.of(session))
        except OSError as error:
            logger.warning("the order of tabs was not recorded: %s", error)

    def end(self) -> None:
        """Remove the record with the context, unless that was left."""
        if not self.is_left:
            self._file.remove()
