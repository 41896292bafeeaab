"""Sessions and bindings as callers see them: times in ISO 8601, neither owners nor nodes."""

from __future__ import annotations

import datetime
from typing import Any

from .lifecycle import Status
from .records import LABELS, BindingRecord, BindingStatus, SessionRecord


def timestamp(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC with milliseconds, None for None."""
    if seconds is None:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(text: object) -> float | None:
    """Return the time that timestamp() wrote, None for anything else."""
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def expiry(record: SessionRecord, status: Status, idle_since: float) -> float | None:
    """Return when an unused session will be closed; None for never."""
    times = record.timeouts
    deadlines = [] if record.lifetime_ends_at is None else [record.lifetime_ends_at]
    if status is Status.PAUSED:
        if times.paused:
            deadlines.append(record.status_at + times.paused)
    elif status is not Status.CLOSED and times.idle and times.paused:
        deadlines.append(idle_since + times.idle + times.paused)
    return min(deadlines, default=None)


def describe(record: SessionRecord, status: Status, idle_since: float) -> dict[str, Any]:
    """Return a record as a caller sees it: times in ISO 8601, no owner, no node."""
    times = record.timeouts
    return {
        "session_id": record.id,
        "name": record.name,
        "namespace": record.namespace,
        "status": status.value,
        "reason": record.reason,
        "created_at": timestamp(record.created_at),
        "used_at": timestamp(max(record.used_at, idle_since)),
        "expires_at": timestamp(expiry(record, status, idle_since)),
        "closed_at": timestamp(record.closed_at),
        "idle_seconds": times.idle,
        "paused_seconds": times.paused,
        "lifetime_seconds": times.lifetime,
        "metadata": record.metadata,
        **{label: getattr(record, label) for label in LABELS},
        "parent": record.parent,
    }


def describe_binding(record: BindingRecord, *, opening: bool = False) -> dict[str, Any]:
    """Return one binding as a caller sees it; `opening` while its connection is being opened."""
    status = record.status
    return {
        "service": record.service,
        "status": "opening" if opening else status.value,
        "connected": status in (BindingStatus.OPEN, BindingStatus.KEPT),
        "generation": record.generation,
        "last_error": record.last_error,
        "since": timestamp(record.since) if record.since else None,
    }


__all__ = ["describe", "describe_binding", "expiry", "seconds_of", "timestamp"]
