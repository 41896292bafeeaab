"""The errors of calls, as one tree. An error code of the server has the same class here and on the server.

SessionError                    code, message, retryable, recovery, session_id, retry_after
 ├── SessionNotFound, SessionExpired, SessionClosed, SessionPaused, SessionFailed, SessionBusy, SessionLimit
 ├── HumanInControl             a person drives the session; nothing ran
 ├── ControlRefused             control of the session is another person's, or has ended
 ├── LoginBusy                  another session has a login that one at a time may have; nothing ran
 ├── ApprovalRequired           a person has to approve the call first; nothing ran
 ├── ServiceNotBound
 ├── ServiceUnavailable
 │    └── LoginUnavailable      a login or a key is missing, or its person has to log in again; nothing was sent
 ├── CallTimedOut               also when `read_timeout_seconds` of the caller ran out
 ├── StillRunning               the call goes on as a task, which the message names; session.task(id) waits for it
 ├── ConnectionLost
 │    └── ServerUnreachable     Statehold itself cannot be reached; nothing was sent
 ├── OutcomeUnknown             the call may or may not have run, and is never sent again by itself
 ├── StateConflict, StateInvalid, NameTaken
 ├── InvalidArgument
 │    └── RequestRefused        a JSON-RPC error: rpc_code, data
 │         └── UnknownTool      with the most similar names
 ├── NotAllowed
 ├── ToolFailed                 the tool itself answered with an error: `result` is its answer
 └── NoCurrentSession           a call that names no session, outside of every block

ConfigError                     of connect(), add_service() and calls, beside the tree: a setting or a service is wrong
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..sessions.errors import (
    ApprovalRequired,
    CallTimedOut,
    ConnectionLost,
    ControlRefused,
    HumanInControl,
    InvalidArgument,
    LoginBusy,
    LoginUnavailable,
    NameTaken,
    NotAllowed,
    OutcomeUnknown,
    RequestRefused,
    ServiceNotBound,
    ServiceUnavailable,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionLimit,
    SessionNotFound,
    SessionPaused,
    StateConflict,
    StateInvalid,
    StillRunning,
)
from ..sessions.wording import PYTHON, next_step

if TYPE_CHECKING:
    from ..access.config.types import ConfigError
    from ..sessions.json_codec import JSON
    from .results import CallResult

ErrorT = TypeVar("ErrorT", bound=SessionError)


class ServerUnreachable(ConnectionLost):
    """Raised when Statehold cannot be reached; the request was not sent."""

    recovery = "See that the server runs (`statehold serve`) and that the address is right, then try again."


class UnknownTool(RequestRefused):
    """Raised when there is no tool of that name; the message lists similar names."""

    recovery = "Call one of the tools that there are: `list_tools()` of the client lists them."

    def __init__(self, rpc_code: int, tool: str, near: Sequence[str]) -> None:
        hint = f" The nearest: {', '.join(near)}." if near else ""
        super().__init__(rpc_code, f"There is no tool {tool[:128]!r}.{hint}")
        self.near = list(near)


class ToolFailed(SessionError):
    """Raised when a tool answered with an error of its own. The session is as it was."""

    code = "tool_failed"
    recovery = "Read what the tool said; `result` holds all of it."

    def __init__(self, tool: str, result: CallResult) -> None:
        super().__init__(result.text or f"{tool} failed and did not say why.")
        self.tool = tool
        self.result = result
        if result.session is not None:
            self.session_id = result.session.id


class NoCurrentSession(SessionError):
    """Raised when a call names no session and none is open around it, in this task or thread."""

    code = "no_current_session"
    recovery = (
        "Call it inside `with client.session():`, on a session, or after `client.auto_session()`."
    )

    def __init__(self, tool: str) -> None:
        super().__init__(f"{tool} needs a session, and there is no current one here.")


CODES: Final[Mapping[str, type[SessionError]]] = {
    kind.code: kind
    for kind in (
        *(SessionNotFound, SessionExpired, SessionClosed, SessionPaused, SessionFailed),
        *(SessionBusy, HumanInControl, ControlRefused, SessionLimit),
        *(ServiceUnavailable, ServiceNotBound, LoginUnavailable, LoginBusy),
        ApprovalRequired,
        *(CallTimedOut, StillRunning),
        *(ConnectionLost, OutcomeUnknown, StateConflict, StateInvalid, NameTaken),
        *(InvalidArgument, NotAllowed),
    )
}
"""The class of each code of a result."""


def error_of_result(details: Mapping[str, Any], text: str) -> SessionError:
    """Return the error of a failed result: `details` are its `_meta`.

    `text` begins with `code: message`, for a tool of the browser below a heading.
    """
    code = str(details.get("code"))
    first_line = text.removeprefix("### Error\n").partition("\n")[0]
    message = first_line.removeprefix(f"{code}: ")
    error = _error_with_message(CODES.get(code, SessionError), message)
    if error.code != code:
        error.code = code
    session_id, recovery = details.get("session_id"), details.get("recovery")
    error.session_id = session_id if isinstance(session_id, str) else None
    error.recovery = next_step(
        recovery if isinstance(recovery, str) else error.recovery,
        PYTHON,
        retry_after=details.get("retry_after_seconds"),
    )
    error.retryable = bool(details.get("retryable"))
    error.retry_after = details.get("retry_after_seconds")
    return error


def no_session(message: str) -> SessionNotFound:
    """Return the error for a session that the client itself does not find."""
    return SessionNotFound(message, recovery=next_step(SessionNotFound.recovery, PYTHON))


def error_of_refusal(refusal: RequestRefused) -> SessionError:
    """Return the session error that a JSON-RPC error carries, else the argument."""
    details: object = refusal.data
    if not isinstance(details, dict) or cast("JSON", details).get("code") not in CODES:
        return refusal
    error = error_of_result(cast("JSON", details), refusal.message)
    recovery = str(cast("JSON", details).get("recovery") or "")
    error.message = error.message.removesuffix(recovery).rstrip()
    return error


def _error_with_message(kind: type[ErrorT], message: str) -> ErrorT:
    """Return an error of a class with this message, without its constructor's other arguments."""
    error = kind.__new__(kind)
    SessionError.__init__(error, message)
    return error


def __getattr__(name: str) -> object:
    # Imported on first use: it imports pydantic.
    if name == "ConfigError":
        from ..access.config.types import ConfigError

        return ConfigError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "SessionError",
    "SessionNotFound",
    "SessionExpired",
    "SessionClosed",
    "SessionPaused",
    "SessionFailed",
    "SessionBusy",
    "HumanInControl",
    "ControlRefused",
    "SessionLimit",
    "ServiceUnavailable",
    "ServiceNotBound",
    "LoginUnavailable",
    "LoginBusy",
    "ApprovalRequired",
    "CallTimedOut",
    "StillRunning",
    "ConnectionLost",
    "ServerUnreachable",
    "OutcomeUnknown",
    "StateConflict",
    "StateInvalid",
    "NameTaken",
    "InvalidArgument",
    "RequestRefused",
    "UnknownTool",
    "NotAllowed",
    "ToolFailed",
    "NoCurrentSession",
    "ConfigError",
]
