"""One look at the sessions of a server: a row for each session, with the calls per second since earlier looks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...sessions.lifecycle import Status
from ..output import seconds_of

RATE_SECONDS: Final = 5.0
"""The calls per second are those of the last so many seconds."""


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One service of a session. `memory` is in bytes and includes child processes; None where it is not known."""

    name: str
    status: str
    generation: int
    pids: Sequence[int] = ()
    memory: int | None = None
    is_shared: bool = False
    """Whether other sessions use the same process."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call that runs, asks its caller, waits for its turn, or has ended, since the second `at` (since 1970)."""

    tool: str
    state: str
    """`runs`, `asks`, `waits`, or the outcome of a call that has ended."""
    at: float


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One open session. Times are in seconds since 1970; `calls` counts the calls that have ended, None if unknown."""

    id: str
    name: str
    status: str
    reason: str = ""
    owner: str = ""
    principal: str = ""
    """The key of its owner."""
    node: str | None = None
    """The process that holds it."""
    place: str = ""
    """That process in words."""
    created_at: float = 0.0
    since: float | None = None
    """When it got its status."""
    used_at: float | None = None
    ends_at: float | None = None
    calls: int | None = None
    calls_per_second: float | None = None
    running: Sequence[CallRow] = ()
    last: CallRow | None = None
    busy: str = ""
    services: Sequence[ServiceRow] = ()

    @property
    def title(self) -> str:
        return self.name or self.id

    @property
    def memory(self) -> int | None:
        """The bytes that its services hold, None if that is not known. Those of a shared process count as a whole."""
        sizes = [service.memory for service in self.services if service.memory is not None]
        return sum(sizes) if sizes else None

    @property
    def shares_memory(self) -> bool:
        return any(service.is_shared and service.memory for service in self.services)


@dataclass(frozen=True, slots=True)
class Sample:
    """The sessions at one moment. `at` is a monotonic time in seconds."""

    at: float
    rows: Sequence[SessionRow] = ()
    processes: int = 0
    """Processes that answered."""
    memory: int | None = None
    """Bytes of memory of these processes and of those of the services."""
    waiting: int = 0
    """Sessions that wait for a free connection."""
    problem: str = ""
    """Why there is nothing to see."""


class Source(Protocol):
    """The server that is looked at. Its methods block, and may be called from several threads."""

    title: str
    note: str
    """Facts that are not to be had from it, in words; empty if there are none."""
    interval: float
    """Seconds between two looks."""

    def read(self, selected: str | None) -> Sample:
        """Look at the sessions. Never raises for a server that does not answer: the sample has the problem.

        `selected`: the session that is shown with its services.
        """
        ...

    def act(self, row: SessionRow, action: str) -> str:
        """Pause, resume or close a session, and return the outcome as one line, also if it failed."""
        ...


def rows_of(documents: Sequence[Mapping[str, Any]]) -> list[SessionRow]:
    """Return the rows of the documents of the verb `activity`, one for each process that answered.

    A session that a process holds is as that process says; any other is as the store says.
    """
    memory = {int(pid): size for each in documents for pid, size in each["memory"].items()}
    held = [(document, session) for document in documents for session in document["sessions"]]
    users = Counter(pid for _, session in held for pid in _pids(session))
    rows = {
        session["session_id"]: _held_row(session, document, memory, users)
        for document, session in held
    }
    places = {document["node"]: _place(document) for document in documents}
    for document in documents:
        for session in document.get("stored", ()):
            rows.setdefault(session["session_id"], _stored_row(session, places))
    return list(rows.values())


def _pids(session: Mapping[str, Any]) -> set[int]:
    return {pid for service in session["services"] for pid in service["pids"]}


def _place(document: Mapping[str, Any]) -> str:
    return str(document["address"] or f"pid {document['pid']}")


def _fields(session: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": session["session_id"],
        "name": session["name"] or "",
        "status": session["status"],
        "reason": session["reason"] or "",
        "owner": session.get("owner") or "",
        "principal": session.get("principal") or "",
        "created_at": seconds_of(session["created_at"]) or 0.0,
        "since": seconds_of(session.get("since")),
        "used_at": seconds_of(session["used_at"]),
        "ends_at": seconds_of(session.get("ends_at") or session.get("expires_at")),
    }


def _stored_row(session: Mapping[str, Any], places: Mapping[str, str]) -> SessionRow:
    node = session["node"]
    place = "" if node is None else places.get(node, "a process that does not answer")
    services = [ServiceRow(name, "", 0) for name in session["services"]]
    return SessionRow(**_fields(session), node=node, place=place, services=services)


def _held_row(
    session: Mapping[str, Any],
    document: Mapping[str, Any],
    memory: Mapping[int, int],
    users: Mapping[int, int],
) -> SessionRow:
    last = session["last_call"]
    return SessionRow(
        **_fields(session),
        node=document["node"],
        place=_place(document),
        calls=session["calls"],
        running=_running(session),
        last=None
        if last is None
        else CallRow(last["tool"], last["status"], _seconds(last["ended_at"])),
        busy=session["busy"] or "",
        services=[service_row(each, memory, users) for each in session["services"]],
    )


def _running(session: Mapping[str, Any]) -> list[CallRow]:
    """Return the calls that run. Those that ask come first, then those that wait."""
    used_at = _seconds(session["used_at"])
    asking = [CallRow(each["tool"], "asks", _seconds(each["since"])) for each in session["asking"]]
    tools = Counter(call.tool for call in asking)
    calls: list[CallRow] = []
    for call in session["running"]:
        if tools[call["tool"]]:
            tools[call["tool"]] -= 1
            continue
        state = "runs" if call["was_sent"] else "waits"
        calls.append(CallRow(call["tool"], state, _seconds(call["started_at"])))
    unknown = session["in_flight"] - len(asking) - len(calls)
    # Requests for resources or prompts, and the calls of an earlier process.
    calls += [CallRow("a request", "runs", used_at)] * max(0, unknown)
    return asking + sorted(calls, key=lambda call: call.state != "waits")


def _seconds(text: str) -> float:
    return seconds_of(text) or 0.0


def service_row(
    service: Mapping[str, Any], memory: Mapping[int, int], users: Mapping[int, int]
) -> ServiceRow:
    """Return the row of one service. `users`: the number of sessions by process."""
    pids: list[int] = list(service.get("pids", ()))
    sizes = [memory[pid] for pid in pids if pid in memory]
    return ServiceRow(
        service["service"],
        service["status"],
        service["generation"],
        pids,
        sum(sizes) if sizes else None,
        any(users.get(pid, 0) > 1 for pid in pids),
        service["last_error"] or "",
    )


def listed_row(session: Mapping[str, Any], info: Mapping[str, Any] | None) -> SessionRow:
    """Return the row of a session as `session_list` gives it; with `info`, the result of `session_info`, its services."""
    services = [] if info is None else [service_row(each, {}, {}) for each in info["services"]]
    used_at = _seconds(session["used_at"])
    is_active = session["status"] == Status.ACTIVE
    count = int(is_active) if info is None else info.get("in_flight", 0)
    running = [CallRow("a call", "runs", used_at)] * count
    return SessionRow(**_fields(session), running=running, services=services)


@dataclass(slots=True)
class Rates:
    """The calls per second of sessions, from the counts of several samples."""

    _counts: dict[str, deque[tuple[float, int]]] = field(
        default_factory=dict[str, deque[tuple[float, int]]]
    )

    def update(self, at: float, rows: Iterable[SessionRow]) -> dict[str, float]:
        """Take in the counts of a sample, and return the calls per second of the sessions that were seen before."""
        known, self._counts = self._counts, {}
        rates: dict[str, float] = {}
        for row in rows:
            if row.calls is None:
                continue
            counts = known.get(row.id, deque[tuple[float, int]]())
            if counts and counts[-1][1] > row.calls:
                # It was paused in between, and counts from zero.
                counts.clear()
            counts.append((at, row.calls))
            while len(counts) > 2 and counts[1][0] <= at - RATE_SECONDS:
                counts.popleft()
            self._counts[row.id] = counts
            (then, before), seconds = counts[0], at - counts[0][0]
            if seconds > 0:
                rates[row.id] = (row.calls - before) / (at - then)
        return rates


def sort_rows(rows: Iterable[SessionRow]) -> list[SessionRow]:
    """Return rows in an order that no call changes: paused sessions last, and the newest first."""
    return sorted(rows, key=lambda row: (row.status == "paused", -row.created_at, row.id))
