"""Everything a session can refuse or fail with.

    SessionError                    code, retryable, recovery
     ├── SessionNotFound            unknown, foreign or purged id: all the same
     ├── SessionExpired             its lifetime or retention ran out
     ├── SessionClosed              closed by request
     ├── SessionPaused              paused, and resuming is not automatic
     ├── SessionFailed              in error, and not recovered
     ├── SessionBusy                at its own limit, or being changed
     │    └── OwnedByAnotherNode    open in another process
     ├── HumanInControl             a person drives it
     ├── ControlRefused             control is not the caller's
     ├── SessionLimit               a quota or the live budget is used up
     ├── ServiceUnavailable         a service cannot be opened
     │    ├── LoginUnavailable      a login or key that it needs is missing, or needs its person
     │    └── NodeUnavailable       this process does not serve its sessions
     │         ├── NodeSuspended    its lease is over
     │         └── ShuttingDown     it ends
     ├── LoginBusy                  another session has a login that only one may have
     ├── ApprovalRequired           a person has to approve the call first
     ├── ServiceNotBound            the session does not use that service
     ├── CallTimedOut               the call took longer than allowed
     ├── StillRunning               the call goes on as a task
     ├── ConnectionLost             the live connection is gone, nothing was sent
     ├── OutcomeUnknown             the connection died during the call
     ├── StateConflict, StateInvalid
     ├── NameTaken
     ├── InvalidArgument
     │    └── RequestRefused        the server answered with a JSON-RPC error
     └── NotAllowed

A client sees `code` and `recovery`, which names our tools as a model calls them; wording.py has the terms of others. A
message never contains a secret, a traceback or a path of this machine.
"""

from __future__ import annotations

from typing import Final, Protocol

CONTROL_RETRY_SECONDS: Final = 5.0
"""Seconds after which a call to a session that a person drives may be sent again."""


class SessionError(Exception):
    """Base of everything a caller can act on. Raised as one of its subclasses only."""

    code: str = "session_failed"
    retryable: bool = False
    recovery: str = "Call session_info to see the state of the session."
    did_not_run: bool = False
    """Whether the request certainly had no effect, so that its operation id stays unused."""
    goes_to_next: bool = False
    """Whether nothing ran, and the same request may be sent to the next process at the same address."""

    def __init__(
        self,
        message: str,
        *,
        session_id: str | None = None,
        recovery: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        if message.endswith("..") and not message.endswith("..."):
            # Words of a server at the end of our sentence have a full stop of their own.
            message = message[:-1]
        super().__init__(message)
        self.message = message
        self.session_id = session_id
        self.retry_after = retry_after
        """Seconds after which trying again makes sense, where that is known."""
        if recovery is not None:
            self.recovery = recovery

    @property
    def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Have Python print what to do below an error that nobody catches."""
        return [self.recovery] if self.recovery else []

    def details(self) -> dict[str, object]:
        """The value of `_meta["statehold/error"]`."""
        fields: dict[str, object] = {
            "code": self.code,
            "retryable": self.retryable,
            "recovery": self.recovery,
            "session_id": self.session_id,
        }
        if self.retry_after is not None:
            fields["retry_after_seconds"] = self.retry_after
        if self.goes_to_next:
            fields["next_process"] = True
        return fields


class SessionNotFound(SessionError):
    """Raised for an unknown, a foreign and a purged id alike, so that callers cannot tell them apart."""

    code = "session_not_found"
    recovery = "Call session_list to see your sessions, or session_create to make one."

    def __init__(
        self, message: str = "There is no such session.", *, recovery: str | None = None
    ) -> None:
        super().__init__(message, recovery=recovery)


class SessionExpired(SessionError):
    """Raised when a session was closed by one of its timeouts."""

    code = "session_expired"
    recovery = "Read what it kept with state_get or session_history, or call session_create to make a new session."


class SessionClosed(SessionError):
    """Raised when a session was closed on request."""

    code = "session_closed"
    recovery = "Call session_create to make a new session."


class SessionPaused(SessionError):
    """Raised when a call needs a session that stays paused until it is resumed."""

    code = "session_paused"
    retryable = True
    recovery = "Call session_resume with this session_id, then try again."


class SessionFailed(SessionError):
    """Raised when a session is in error and was not recovered."""

    code = "session_failed"
    recovery = "Call session_restart with this session_id, or session_create to make a new session."


class SessionBusy(SessionError):
    """Raised when another process holds the session open, or it has too many calls in flight."""

    code = "session_busy"
    retryable = True
    recovery = (
        "Wait for the other calls, or close the process that holds the session, then try again."
    )


class OwnedByAnotherNode(SessionBusy):
    """Raised when another node is to serve the request: it owns the session, or is to take it on. Nothing ran.

    `session_id` is the session, None for one that is yet to be created. No caller sees the other attributes: `node` is the
    id of the other node, `epoch` the epoch of the session as far as it is known (0: it is not), and `adopt` says that the
    other node does not own the session, but is to claim or create it.
    """

    recovery = "Use it there, or try again when it is closed there."

    def __init__(
        self,
        session_id: str | None,
        node: str,
        address: str | None = None,
        *,
        epoch: int = 0,
        adopt: bool = False,
    ) -> None:
        place = "" if address is None else f" ({address})"
        super().__init__(f"The session is open in another process{place}.", session_id=session_id)
        self.node = node
        self.epoch = epoch
        self.adopt = adopt


class OperationBusy(SessionBusy):
    """Raised when another process runs a call with this operation id. This call was not run."""

    recovery = (
        "Send the call again with the same operation id: it gets the result of the other call."
    )

    def __init__(self, *, session_id: str | None = None) -> None:
        message = "A call with this operation id runs in another process."
        super().__init__(message, session_id=session_id, retry_after=1.0)


class HumanInControl(SessionError):
    """Raised for a call to a session that a person drives, or takes over. Nothing ran, and nothing is queued."""

    code = "human_in_control"
    retryable = True
    recovery = (
        "Wait, then call again. After the person has handed the session back, the first result says what changed; "
        "call session_info to see who has control."
    )
    did_not_run = True

    def __init__(self, session_id: str, reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        super().__init__(
            f"A person has control of the session{because}. The call was not run.",
            session_id=session_id,
            retry_after=CONTROL_RETRY_SECONDS,
        )


class ControlRefused(SessionError):
    """Raised when control of a session is not the caller's: someone else has it, or it ended."""

    code = "control_refused"
    recovery = "Call session_info to see who has control."


class SessionLimit(SessionError):
    """Raised when a quota or the budget of live connections is used up."""

    code = "session_limit"
    retryable = True
    recovery = "Close or pause a session you no longer need, or try again later."


class PendingLogin(Protocol):
    """A login at a service that a person can do at an address."""

    address: str

    async def wait(self) -> bool:
        """Wait until the person is logged in. Return False if they take too long."""
        ...


class ServiceUnavailable(SessionError):
    """Raised when a service could not be opened for a session.

    `login` is the one that the person of the caller can do, after which the call can be sent again; else None.
    """

    login: PendingLogin | None = None
    needs_login: str = ""
    """The name of the login or key without which the service does not open."""

    code = "service_unavailable"
    retryable = True
    recovery = "Try again later; call session_info to see the last error of each service."


class LoginUnavailable(ServiceUnavailable):
    """Raised when a login or a key is missing or cannot be used. Nothing was sent; its person has to act first."""

    code = "login_unavailable"
    retryable = False
    recovery = "Ask the person whose login it is to log in again: statehold logins."
    did_not_run = True


class ApprovalRequired(SessionError):
    """Raised when a person has to approve a call first, and its client cannot ask. Nothing ran."""

    code = "approval_required"
    recovery = "Ask a person to approve it: statehold approvals. Then send the same call again."
    did_not_run = True


class LoginBusy(SessionError):
    """Raised when another session has a login that one session at a time may have. Nothing ran."""

    code = "login_busy"
    retryable = True
    recovery = "Wait until it is given back, then try again."
    did_not_run = True


class NodeUnavailable(ServiceUnavailable):
    """Raised when this process does not serve its sessions now. Nothing ran; another node may serve the request."""


class NodeSuspended(NodeUnavailable):
    """Raised when the lease of this node is over, because its database did not answer."""

    recovery = "Try again in a moment."

    def __init__(self) -> None:
        super().__init__("The server waits for its database.", retry_after=1.0)


class ShuttingDown(NodeUnavailable):
    """Raised when this process ends and takes no new work."""

    goes_to_next = True

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


class ServiceNotBound(SessionError):
    """Raised when a session is asked for a tool of a service that it does not use."""

    code = "service_not_bound"
    recovery = "Call session_bind with this session_id and the name of the service."


class CallTimedOut(SessionError):
    """Raised when a call took longer than its limit; it was cancelled."""

    code = "call_timeout"
    recovery = "The call may have had an effect: look before you repeat it."


class StillRunning(SessionError):
    """Raised when a call goes on without its caller; the message names its task."""

    code = "still_running"
    recovery = "Call call_result with this task_id for the result; do not repeat the call."

    def __init__(self, task: str, question: str | None = None) -> None:
        """`question` is what the call asks, if it does."""
        state = "runs" if question is None else f"waits for an answer to its question ({question})"
        super().__init__(
            f"The call {state}. Its task_id is {task}.", session_id=task.partition(".")[0]
        )
        if question is not None:
            self.recovery = f"Tell the user to answer it: statehold answer {task}. {self.recovery}"


class ConnectionLost(SessionError):
    """Raised when the live connection was gone before the call was sent; nothing ran."""

    code = "connection_lost"
    retryable = True
    recovery = "Try the call again: it was not sent."
    did_not_run = True


class OutcomeUnknown(SessionError):
    """Raised when the connection died during a call, so it is unknown whether the call took effect."""

    code = "outcome_unknown"
    recovery = "The call may or may not have run: look at its effect before you repeat it."


class CallWithdrawn(OutcomeUnknown):
    """Raised when a call was cancelled by its server, or by a restart while its caller was asked. It is not repeated."""


class StateConflict(SessionError):
    """Raised when `if_version` is not the version of the state."""

    code = "state_conflict"
    retryable = True
    recovery = "Read the state again and apply the change to the newer version."


class StateInvalid(SessionError):
    """Raised when a state is too large, not JSON, or does not fit the session's schema."""

    code = "state_invalid"
    recovery = "Correct the values and try again."


class NameTaken(SessionError):
    """Raised when the caller already has an open session of that name."""

    code = "name_taken"
    recovery = "Choose another name, or call session_list to find the session that has it."


class InvalidArgument(SessionError):
    """Raised when an argument of one of our own tools is not acceptable."""

    code = "invalid_argument"
    recovery = "Correct the argument and try again."


class RequestRefused(InvalidArgument):
    """Raised when the server answered a request with a JSON-RPC error, which may be passed on as it is."""

    recovery = "Read the message of the server, correct the call and try again."

    def __init__(self, rpc_code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        """The JSON-RPC error code; `code` is ours."""
        self.data = data


class NotAllowed(SessionError):
    """Raised when the configuration or the caller's rights forbid the operation."""

    code = "not_allowed"
    recovery = "Ask the operator of this server."


class IllegalTransition(Exception):
    """Raised when an event cannot happen in a status; a bug of ours, never a caller's."""

    def __init__(self, status: str | None, event: str) -> None:
        super().__init__(f"{event!r} cannot happen to a session that is {status or 'not there'!r}")
        self.status = status
        self.event = event


class SessionFenced(Exception):
    """Raised when a write was refused because another node owns the session now.

    The holder drops its live connections of that session and writes nothing more for it.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} is owned by another node")
        self.session_id = session_id


class StoreUnavailable(Exception):
    """Raised when the store cannot be opened, read or written. Its message says why and what to do."""
