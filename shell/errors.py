"""The error of a command about one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ..server.exit_codes import CODES, FAILURE, NOT_FOUND, USAGE
from ..sessions.errors import SessionError
from ..sessions.wording import SHELL, next_step

if TYPE_CHECKING:
    from ..sessions.records import SessionRecord

_EXIT_CODES = {code: CODES[code] for code in ("session_not_found", "session_busy")}


class CommandError(Exception):
    """Raised when a command cannot read or change a session. Its text says what to do."""

    def __init__(self, code: str, message: str, exit_code: int = FAILURE) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code

    @classmethod
    def usage(cls, message: str) -> Self:
        """Return the error of a command line that cannot be carried out."""
        return cls("usage", message, USAGE)

    @classmethod
    def session_unknown(cls, ref: str, data: object, message: str = "") -> Self:
        """Return the error of a session that does not exist. `message` says more, such as a name that is near."""
        text = message or f"There is no session {ref}."
        message = f"{text[0].lower()}{text[1:]} The data folder is {data}; see: statehold sessions list --all"
        return cls("session_not_found", message, NOT_FOUND)

    @classmethod
    def session_closed(cls, record: SessionRecord) -> Self:
        """Return the error of a session that is closed."""
        return cls("session_closed", f"{record.id} is closed; make a new session")

    @classmethod
    def of(cls, record: SessionRecord, code: str, message: str, recovery: str) -> Self:
        """Return the error with which a tool refused to act on a session."""
        step = next_step(recovery, SHELL, record.name or record.id)
        text = f"{record.id}: {message} {step}".strip()
        return cls(code, text, _EXIT_CODES.get(code, FAILURE))

    @classmethod
    def of_session(cls, record: SessionRecord, error: SessionError) -> Self:
        """Return the error of a session as that of a command."""
        return cls.of(record, error.code, error.message, error.recovery)
