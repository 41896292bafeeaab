"""Runs: blocks that group the calls, messages and changes of the state of one session in its history."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from ..tools.own.results import History, HistoryEntry, parse_result
from .blocks import Current
from .errors import ConnectionLost, OutcomeUnknown, SessionClosed, SessionExpired, SessionNotFound

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON
    from .state import OwnToolCaller

END_SECONDS = 15.0
"""Seconds that the end of a block waits until the end of its run is stored."""
END_SECONDS_AFTER_AN_ERROR = 3.0
"""The same for a block that failed or was cancelled: its caller waits for an exception, often of a server that is gone."""
MAX_ERROR_LENGTH: Final = 10_000
"""Characters of an error that are sent. The server keeps fewer."""

logger = logging.getLogger("statehold.client")

default_run_id: Final[ContextVar[str | None]] = ContextVar("statehold.client.run_id", default=None)
"""The id of calls outside of every block: an integration sets it to the id that its framework has for a call."""


class Run:
    """`async with` it: it begins a run of a session, which ends with the block.

    All calls, messages and changes of the state of this session inside of the block, also in tasks that it starts, have the
    id of the run in the history. A block inside of it is another run. The status is `completed` at the end, `error` after an
    exception, which passes unchanged, and `cancelled` if the block was cancelled.
    """

    id: str
    status: str
    """`running`, `completed`, `error` or `cancelled`."""
    error: str | None
    """The exception that ended the block, as text."""
    started_at: str | None
    """ISO 8601 in UTC; None before the block."""
    ended_at: str | None

    def __init__(self, session: OwnToolCaller, run_id: str | None) -> None:
        self._session = session
        self.id = f"run_{uuid.uuid4().hex}" if run_id is None else run_id
        self.status = "running"
        self.error = None
        self.started_at = None
        self.ended_at = None

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}>"

    @contextmanager
    def use(self) -> Generator[Self]:
        """Give calls of this task its id inside of a `with` block, which does not end it."""
        entry = _current_runs.enter(self._session.id, self)
        try:
            yield self
        finally:
            _current_runs.leave(entry)

    async def begin(self) -> None:
        """Store its beginning."""
        if self.started_at is not None:
            raise RuntimeError("a run is begun once; ask the session for another one")
        await self._write("running")

    async def end(self, cause: BaseException | None = None) -> None:
        """Store its end, also when the caller is cancelled.

        If the block failed, or its session is closed, an end that cannot be stored is logged, not raised.

        Raises:
            ConnectionLost: Statehold did not answer in time.
            SessionError: the end could not be stored.
        """
        self.status, self.error = "completed", None
        if cause is not None:
            self.status = "error" if isinstance(cause, Exception) else "cancelled"
            self.error = f"{type(cause).__name__}: {cause}".removesuffix(": ")
        try:
            await self._write_end(END_SECONDS if cause is None else END_SECONDS_AFTER_AN_ERROR)
        except Exception as error:
            is_closed = isinstance(error, SessionClosed | SessionExpired | SessionNotFound)
            if cause is None and not is_closed:
                raise
            logger.warning("the end of run %s was not stored: %s", self.id, error)

    async def _write_end(self, seconds: float) -> None:
        with anyio.move_on_after(seconds, shield=True) as scope:
            try:
                await self._write(self.status, self.error)
            except OutcomeUnknown:
                # A second end of a run that has ended would be a run of its own.
                if not await self._find_end():
                    await self._write(self.status, self.error)
        if scope.cancelled_caught:
            raise ConnectionLost(f"Statehold did not answer within {seconds:g} seconds.")

    async def _find_end(self) -> bool:
        """Return whether the end of the run is stored, and take its times."""
        newest = {"kind": "run", "run": self.id, "last": 1}
        answer = await self._session.call_own("session_history", newest)
        for entry in parse_result(History, answer).entries:
            self._take_times(entry)
        return self.ended_at is not None

    async def _write(self, status: str, error: str | None = None) -> None:
        arguments: JSON = {"run_id": self.id, "status": status}
        if error is not None:
            arguments["error"] = error[:MAX_ERROR_LENGTH]
        answer = await self._session.call_own("session_run", arguments)
        self._take_times(parse_result(HistoryEntry, answer["entry"]))

    def _take_times(self, entry: HistoryEntry) -> None:
        self.started_at, self.ended_at = entry.at, entry.ended_at

    async def __aenter__(self) -> Self:
        await self.begin()
        self._use = self.use()
        return self._use.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._use.__exit__(None, None, None)
        await self.end(error)


_current_runs: Final[Current[Run]] = Current("statehold.client.run")


def current_run_id(session_id: str) -> str | None:
    """Return the id of the innermost run of a session around the running code, else the one of an integration."""
    run = _current_runs.find(session_id)
    return default_run_id.get() if run is None else run.id


__all__ = ["Run", "current_run_id", "default_run_id"]
