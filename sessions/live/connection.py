"""One live connection and the task that owns it.

A cancel scope that is entered in one task and left in another breaks connections that have nothing to do with it. So exactly
one task, the owner, opens a connection, watches it and closes it; every other task only calls it.

CallActivity counts the calls over the connections of a session, HandedOverCalls those that no request waits for.
"""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import anyio

from ..errors import ServiceUnavailable, SessionError
from ..metrics.usage import ServiceUsage
from ..services import (
    Connection,
    Diagnosing,
    ProcessBacked,
    Resumption,
    Service,
    SessionView,
    Snapshot,
)
from .budget import Budget

logger = logging.getLogger("statehold.connections")

MAX_WAITING_CALLS = 1_000_000
"""Calls that wait for slots of one connection; the limits of principals and sessions come before."""
CLOSE_BOUND = 15.0
"""Seconds after which the owner stops waiting for a connection that does not close; its own bounds are shorter."""


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

    def waiting_times(self, session_id: str) -> list[tuple[str, float]]:
        """Return tool and seconds of waiting of each waiting call of one session."""
        now = anyio.current_time()
        return [
            (tool, now - since)
            for owner, tool, since in self._calls.values()
            if owner == session_id
        ]

    def open(self, call: AskingCall, session_id: str, tool: str) -> None:
        self._calls[call] = (session_id, tool, anyio.current_time())

    def close(self, call: AskingCall) -> None:
        self._calls.pop(call, None)

    def describe(self, session_id: str) -> str:
        """Return the waiting call and its waiting time, in words. Tools of another session are not named."""
        owner, tool, since = next(iter(self._calls.values()))
        caller = tool if owner == session_id else "a call of another session"
        return f"{caller} has waited {anyio.current_time() - since:.0f} seconds for its caller's answer"


class LiveConnection:
    """A connection of one service, from the moment it is being opened until it is closed.

    It lives until aclose(), until the other end is lost, or until the task group it was started in ends. Any number of tasks
    may wait for it to open: it is opened once. A waiter that is cancelled leaves the others and the opening alone.
    `on_opening_ended` is called with the error of the opening or None, before any waiter goes on, unless it is closed.
    """

    def __init__(
        self,
        service: Service,
        view: SessionView,
        snapshot: Snapshot | None,
        *,
        on_lost: Callable[[LiveConnection], None],
        on_opening_ended: Callable[[SessionError | None], None] | None = None,
        resume_token: str | None = None,
        shared: bool = False,
        host: str | None = None,
    ) -> None:
        """`shared`: other principals than `host`, the owner of its session, may call it; of a shared service it is None."""
        self.service = service
        self.view = view
        self.resume_token = resume_token
        """With a token, it is the connection of another process, and is resumed instead of being opened."""
        self.calls = 0
        """Number of calls answered over it."""
        self.called_at = float("-inf")
        """When the last call over it ended, with any outcome."""
        self.kept_seconds = 0.0
        """How long its other end waits for the next process, for the sake of a call."""
        self.opening_recorded = anyio.Event()
        """Set when its opening is recorded, or could not be recorded."""
        self._snapshot = snapshot
        self.restores = snapshot is not None
        """Whether it is opened from a snapshot."""
        self._on_lost = on_lost
        self._on_opening_ended = on_opening_ended
        self._connection: Connection | None = None
        self._error: SessionError | None = None
        self._opening_ended = anyio.Event()
        self._stop = anyio.Event()
        self._opening = anyio.CancelScope()
        self.slots = Budget(
            service.concurrency,
            queue=MAX_WAITING_CALLS,
            queue_seconds=math.inf,
            shared=shared,
            host=host,
        )
        """The places of its calls. The owners of waiting calls take turns, and none but the host can take all places."""
        self.questions = OpenQuestions()
        """Its calls that wait for an answer of their caller."""
        self.closed = anyio.Event()

    def __repr__(self) -> str:
        return (
            f"<LiveConnection {self.service.name!r} generation={self.view.generation} {self.phase}>"
        )

    @property
    def phase(self) -> Literal["opening", "open", "lost", "failed", "closing", "closed"]:
        if self.closed.is_set():
            return "failed" if self._error else "closed"
        if self._stop.is_set():
            return "closing"
        if self._connection is None:
            return "failed" if self._error else "opening"
        return "lost" if self._connection.lost.is_set() else "open"

    @property
    def usable(self) -> bool:
        """Whether a call may be sent now."""
        return (
            self._connection is not None
            and not self._stop.is_set()
            and not self._connection.lost.is_set()
        )

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to close, or its loss was noticed."""
        return self._stop.is_set()

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise self._error or ServiceUnavailable(f"{self.service.name} is not open yet.")
        return self._connection

    @property
    def waiting_calls(self) -> int:
        """The number of calls that wait for a slot."""
        return self.slots.statistics().waiting

    @property
    def blocked_by_questions(self) -> bool:
        """Whether each call that has a slot waits for its caller's answer."""
        return 0 < self.slots.statistics().used <= len(self.questions)

    @property
    def busy(self) -> str | None:
        """The work that a pause would lose, in words; None when there is none."""
        return self.connection.busy if self.usable else None

    @property
    def reason(self) -> str | None:
        """Why it was lost or could not be opened."""
        if self._error is not None:
            return self._error.message
        return self._connection.reason if self._connection is not None else None

    def stderr_tail(self) -> str:
        """Return the last lines that the other end wrote to stderr, also after it was closed."""
        connection = self._connection
        return connection.stderr_tail() if isinstance(connection, Diagnosing) else ""

    @property
    def stray_output(self) -> str:
        """The text that the other end wrote in place of an answer to a call that was cancelled."""
        connection = self._connection
        return connection.stray_output if isinstance(connection, Diagnosing) else ""

    def pids(self) -> list[int]:
        """Return the ids of the processes at its other end, as far as they run on this machine."""
        connection = self._connection if self.usable else None
        return list(connection.pids) if isinstance(connection, ProcessBacked) else []

    def start(self, start: Callable[..., object]) -> None:
        """Start the owner task by `start`, which starts one in a task group. Called once."""
        # An empty context: the opener's token and trace must not live as long as the connection.
        contextvars.Context().run(start, self._own)

    async def wait_until_open(self) -> Connection:
        """Wait until it is open.

        Raises:
            ServiceUnavailable: it could not be opened, or it was closed meanwhile.
        """
        await self._opening_ended.wait()
        return self.connection

    async def wait_until_ended(self) -> None:
        """Wait until its opening has ended, with any outcome."""
        await self._opening_ended.wait()

    async def aclose(self) -> None:
        """Close it and wait, within a bound, until it is closed. A pending opening is cancelled."""
        self.close_nowait()
        with anyio.move_on_after(CLOSE_BOUND):
            await self.closed.wait()

    @property
    def resumption(self) -> Resumption | None:
        """How it outlives this process; None if it ends with it, and before it is open."""
        return None if self._connection is None else self._connection.resumption

    def close_nowait(self) -> None:
        """Tell the owner to close it; `closed` is set when that is done."""
        self._stop.set()
        if not self._opening_ended.is_set():
            self._opening.cancel()

    async def _own(self) -> None:
        try:
            await self._open()
            if self._connection is not None:
                await self._hold(self._connection)
        except Exception:
            logger.exception("the owner of %s failed", self.service.name)
        finally:
            self._opening_ended.set()
            self.closed.set()

    async def _open(self) -> None:
        name, bound = self.service.name, self.service.connect_seconds
        try:
            with self._opening, anyio.fail_after(bound):
                self._connection = await self._open_or_resume()
        except SessionError as error:
            self._error = error
        except TimeoutError:
            self._error = ServiceUnavailable(f"{name} did not open within {bound:g} seconds.")
        except Exception:
            logger.exception("%s failed to open", name)
            self._error = ServiceUnavailable(
                f"{name} could not be opened because of an internal fault."
            )
        if self._connection is None and self._error is None:
            self._error = ServiceUnavailable(f"{name} was closed while it was being opened.")
        self._snapshot = None
        if self._on_opening_ended is not None and not self._stop.is_set():
            self._on_opening_ended(self._error)
        self._opening_ended.set()

    async def _open_or_resume(self) -> Connection:
        if self.resume_token is None:
            return await self.service.open(self.view, self._snapshot)
        return await self.service.resume(self.view, self.resume_token, self._snapshot)

    async def _hold(self, connection: Connection) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, connection)
                await self._stop.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(CLOSE_BOUND, shield=True) as scope:
                try:
                    await connection.aclose()
                except Exception:
                    logger.exception("%s failed to close", self.service.name)
            if scope.cancelled_caught:
                logger.error("%s did not close within %g seconds", self.service.name, CLOSE_BOUND)

    async def _watch(self, connection: Connection) -> None:
        await connection.lost.wait()
        if not self._stop.is_set():
            self._on_lost(self)
            self._stop.set()


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

    tool: str
    status: str
    ended_at: float


class CallActivity:
    """Counts the calls of one session. It lives as long as the session is open in this process; nothing of it is stored."""

    __slots__ = ("ended", "last", "running", "usage")

    def __init__(self) -> None:
        self.running: dict[RunningCall, float] = {}
        """The calls that run, with the second since 1970 at which each started."""
        self.ended = 0
        """Calls that have ended, with any outcome."""
        self.last: EndedCall | None = None
        self.usage: dict[str, ServiceUsage] = {}
        """The use of its services in the last hour, by service."""

    def usage_of(self, service: str) -> ServiceUsage:
        return self.usage.get(service) or self.usage.setdefault(service, ServiceUsage())

    def begin(self, call: RunningCall, started_at: float) -> None:
        self.running[call] = started_at

    def end(self, call: RunningCall, status: str, ended_at: float, *, has_failed: bool) -> None:
        """Count a call as ended. A call that did not begin is ignored."""
        started_at = self.running.pop(call, None)
        if started_at is not None:
            self.ended += 1
            self.last = EndedCall(call.tool, status, ended_at)
            seconds = ended_at - started_at
            self.usage_of(call.service).record_call(ended_at, seconds, has_failed=has_failed)


class HandedOverCalls:
    """The running calls of a session that were handed over, each with its connection. It lives as long as the session."""

    def __init__(self) -> None:
        self._connections: dict[str, LiveConnection] = {}
        self._followed: set[str] = set()

    @property
    def lasting(self) -> int:
        """The number of those that end in the next process: their other end keeps them, or runs them as tasks."""
        return sum(
            live.service.scope == "session"
            and live.resumption is not None
            and live.resumption.token is not None
            and (live.resumption.keeps_calls or operation_id in self._followed)
            for operation_id, live in self._connections.items()
        )

    async def begin(self, operation_id: str, live: LiveConnection, seconds: float) -> None:
        """Have the connection of a call wait so long for the next process, if this one ends."""
        self._connections[operation_id] = live
        if live.resumption is not None and live.kept_seconds < seconds:
            await live.resumption.keep(seconds)
            live.kept_seconds = seconds

    def follow(self, operation_id: str) -> None:
        """Record that the other end runs a call as a task, which the next process can follow."""
        self._followed.add(operation_id)

    async def end(self, operation_id: str) -> None:
        """Let the connection of an ended call wait as any other, unless another such call runs on it."""
        self._followed.discard(operation_id)
        live = self._connections.pop(operation_id, None)
        if live is None or live.resumption is None or live in self._connections.values():
            return
        live.kept_seconds = 0.0
        await live.resumption.keep(0.0)
