"""The error of a command about one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ..server.exit_codes import CODES, FAILURE, USAGE
from ..sessions.errors import SessionError
from ..sessions.wording import SHELL, next_step

if TYPE_CHECKING:
    from ..sessions.records import SessionRecord


class CommandError(Exception):
    """Raised when a command cannot read or change a session. Its text says what to do.

    The exit code is that of its code, as for `statehold call`; `exit_code` is for codes that are not those of a session.
    """

    def __init__(self, code: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = CODES.get(code, FAILURE) if exit_code is None else exit_code

    @classmethod
    def usage(cls, message: str) -> Self:
        """Return the error of a command line that cannot be carried out."""
        return cls("usage", message, USAGE)

    @classmethod
    def session_unknown(cls, ref: str, data: object, message: str = "") -> Self:
        """Return the error of a session that does not exist. `message` says more, such as a name that is near."""
        text = message or f"There is no session {ref}."
        message = f"{text[0].lower()}{text[1:]} The data folder is {data}; see: statehold sessions list --all"
        return cls("session_not_found", message)

    @classmethod
    def session_closed(cls, record: SessionRecord) -> Self:
        """Return the error of a session that is closed."""
        return cls(
            "session_closed",
            f"{record.id} is closed; make a new session: statehold call NAME TOOL",
        )

    @classmethod
    def of(cls, record: SessionRecord, code: str, message: str, recovery: str) -> Self:
        """Return the error with which a tool refused to act on a session."""
        step = next_step(recovery, SHELL, record.name or record.id)
        text = f"{record.id}: {message} {step}".strip()
        return cls(code, text)

    @classmethod
    def of_session(cls, record: SessionRecord, error: SessionError) -> Self:
        """Return the error of a session as that of a command."""
        return cls.of(record, error.code, error.message, error.recovery)
