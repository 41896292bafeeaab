"""The counters and histograms of one process, with labels that no caller can multiply.

They are plain objects, and cost a call a few lookups. server/operate/metrics.py writes them for Prometheus. No label is a
principal, a session or a path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from .. import errors

T = TypeVar("T")

BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
"""The upper bounds of the buckets of durations, in seconds: those of OpenTelemetry for MCP, and finer ones below 10 ms."""
MAX_SERIES: Final = 1000
"""Combinations of labels of one instrument. Further ones have OTHER for the tool, beyond twice as many for all labels."""
TOOL: Final = "gen_ai_tool_name"
OTHER: Final = "_OTHER"
"""The label in place of a value that is not known, as in OpenTelemetry."""

CODES: Final = frozenset(
    kind.code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.SessionError)
)
_SUCCESSES: Final = frozenset({"ok", "input_required", errors.StillRunning.code})


class Histogram:
    """Durations in seconds, counted in the buckets of BOUNDS."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def record(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def add(self, other: Histogram) -> None:
        """Count the durations of another histogram too."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def quantile(self, share: float) -> float | None:
        """Return the duration that a share of all do not exceed, interpolated as by `histogram_quantile` of Prometheus.

        None without durations.
        """
        rank, below, lower = share * sum(self.counts), 0, 0.0
        for count, upper in zip(self.counts, BOUNDS, strict=False):
            if count and below + count >= rank:
                return lower + (upper - lower) * (rank - below) / count
            below, lower = below + count, upper
        return lower if self.counts[-1] else None


class Instrument(Generic[T]):
    """One metric: a value for each combination of its labels."""

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], create: Callable[[], T]
    ) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.values: dict[tuple[str, ...], T] = {}
        self._create = create

    def of(self, labels: tuple[str, ...]) -> T:
        """Return the value of some labels, created on first use."""
        for most, others in ((MAX_SERIES, (TOOL,)), (2 * MAX_SERIES, self.labels)):
            if labels in self.values or len(self.values) < most:
                break
            pairs = zip(self.labels, labels, strict=True)
            labels = tuple(OTHER if name in others else label for name, label in pairs)
        return self.values.setdefault(labels, self._create())


class Durations(Instrument[Histogram]):
    """A histogram for each combination of labels."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(f"{name}_seconds", text, labels, Histogram)

    def record(self, seconds: float, *labels: str) -> None:
        # As Histogram.record() does, without the call: this runs three times for each call of a tool.
        histogram = self.values.get(labels) or self.of(labels)
        histogram.counts[bisect_left(BOUNDS, seconds)] += 1
        histogram.total += seconds


class Counts(Instrument[list[float]]):
    """A number that only rises, for each combination of labels."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(f"{name}_total", text, labels, lambda: [0.0])

    def add(self, *labels: str, amount: float = 1.0) -> None:
        self.of(labels)[0] += amount


class Metrics:
    """The instruments of one process. It lives as long as the process; only the event loop may use it.

    With `has_tools`, the durations of calls have the names of tools, else these labels are empty.
    """

    def __init__(self, *, has_tools: bool = False) -> None:
        self.has_tools = has_tools
        # The names of these two are those of OpenTelemetry for MCP.
        self.requests = Durations(
            "mcp_server_operation_duration",
            "Requests of clients, from their arrival to the answer.",
            *("mcp_method_name", TOOL, "error_type", "era", "network_transport"),
        )
        self.calls = Durations(
            "mcp_client_operation_duration",
            "Tool calls that were sent to services, from the request to the answer.",
            *("service", TOOL, "error_type"),
        )
        self.waits = Durations(
            "statehold_call_wait",
            "Waits of calls for a connection, a place or a turn, whether they were sent then or not.",
            "service",
        )
        self.unsent = Counts(
            "statehold_calls_not_sent",
            "Tool calls that ended before they were sent to their service.",
            *("service", "error_type"),
        )
        self.openings = Durations(
            "statehold_connection_open",
            "Openings of connections, with the start of their programs.",
            *("service", "error_type"),
        )
        self.losses = Counts(
            "statehold_connections_lost", "Connections that ended by themselves.", "service"
        )
        self.restarts = Counts(
            "statehold_restarts", "Connections that were replaced by fresh ones.", "service"
        )
        self.notices = Counts(
            "statehold_losses_told", "Replacements that lost something, and said so.", "service"
        )
        self.transitions = Counts(
            "statehold_session_transitions", "Transitions of sessions by their events.", "event"
        )
        self.snapshots = Durations(
            "statehold_snapshot", "Snapshots that services took.", *("service", "error_type")
        )
        self.snapshot_bytes = Counts(
            "statehold_snapshot_bytes", "Bytes of the snapshots that services took.", "service"
        )
        self.approvals = Counts(
            "statehold_approvals", "Approvals that calls needed, by what became of them.", "state"
        )
        self.human_requests = Counts("statehold_human_requests", "Requests of agents for a person.")
        self.refused_tokens = Counts(
            "statehold_requests_refused", "Requests refused for their token.", "error_type"
        )

        for state in ("requested", "used", "refused", "expired"):
            self.approvals.of((state,))
        self.human_requests.of(())

    def add_service(self, name: str) -> None:
        """Begin the series of what a service seldom does with 0: Prometheus sees no rise in a series that begins with 1."""
        for counts in (self.losses, self.restarts, self.notices):
            counts.of((name,))
        self.snapshots.of((name, "failed"))
        self.openings.of((name, errors.ServiceUnavailable.code))

    def instruments(self) -> list[Counts | Durations]:
        """Return all instruments."""
        return [each for each in vars(self).values() if isinstance(each, Counts | Durations)]


def error_type(outcome: str) -> str:
    """Return the label for the outcome of a call: our code, `tool_error` for a result with `isError`, empty for success.

    An outcome may stand in the answer of a service, so only known ones become labels.
    """
    if outcome in _SUCCESSES:
        return ""
    if outcome == "error":
        return "tool_error"
    return outcome if outcome in CODES or outcome == "cancelled" else OTHER
