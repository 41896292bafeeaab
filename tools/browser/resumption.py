"""How the context of a session outlives this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...sessions.services import Resumption
from .snapshot.adoption import ContextFile, ContextPlace, ContextRecord

if TYPE_CHECKING:
    from .session.session import BrowserSession

logger = logging.getLogger("statehold.browser")


class ContextResumption(Resumption):
    """The Resumption of one connection: the place of its context, and a file about its tabs.

    It knows no calls: a page does not tell whether one ran.
    """

    def __init__(self, place: ContextPlace, file: ContextFile) -> None:
        self._place = place
        self.is_left = False
        """Whether the context stays as it is when the connection closes, because another process has it."""
        self._file = file

    @property
    def token(self) -> str:
        return self._place.to_token()

    def leave(self) -> None:
        self.is_left = True

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
