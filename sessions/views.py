"""Sessions and bindings as callers see them: times in ISO 8601, neither owners nor nodes."""

from __future__ import annotations

from typing import Any

from .lifecycle import Status
from .records import (
    LABELS,
    BindingRecord,
    BindingStatus,
    ControlLease,
    GranteeKind,
    Principal,
    SessionDriver,
    SessionRecord,
    ShareRecord,
    ShareRights,
)
from .times import timestamp


def expiry(
    record: SessionRecord, status: Status, idle_since: float, *, closes_idle: bool = False
) -> float | None:
    """Return when an unused session will be closed; None for never. `closes_idle`: it is not paused before."""
    times = record.timeouts
    deadlines = [] if record.lifetime_ends_at is None else [record.lifetime_ends_at]
    if status in (Status.CLOSING, Status.CLOSED):
        return None
    if status is Status.PAUSED:
        if times.paused:
            deadlines.append(max(record.status_at, idle_since) + times.paused)
    elif closes_idle:
        if times.idle:
            deadlines.append(idle_since + times.idle)
    elif times.idle and times.paused:
        deadlines.append(idle_since + times.idle + times.paused)
    return min(deadlines, default=None)


def describe(
    record: SessionRecord, status: Status, idle_since: float, *, closes_idle: bool = False
) -> dict[str, Any]:
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
        "expires_at": timestamp(expiry(record, status, idle_since, closes_idle=closes_idle)),
        "closed_at": timestamp(record.closed_at),
        "idle_seconds": times.idle,
        "paused_seconds": times.paused,
        "lifetime_seconds": times.lifetime,
        "metadata": record.metadata,
        **{label: getattr(record, label) for label in LABELS},
        "parent": record.parent,
        "control": describe_control(record.control),
    }


def describe_control(lease: ControlLease) -> dict[str, Any] | None:
    """Return who drives a session as a caller sees it; None while the agent does and no person ever did."""
    if lease.driver is SessionDriver.AGENT and lease.end is None:
        return None
    return {
        "driver": lease.driver.value,
        "holder": lease.holder,
        "reason": lease.reason,
        "since": timestamp(lease.since),
        "expires_at": timestamp(lease.expires_at),
        "end": None if lease.end is None else lease.end.value,
        "reply": lease.reply,
        "epoch": lease.epoch,
        "agent_left": lease.agent_left,
    }


def describe_share(share: ShareRecord) -> dict[str, Any]:
    """Return a share of a session as its owner sees it."""
    grantee = share.grantee
    return {
        ("group" if grantee.kind is GranteeKind.GROUP else "subject"): grantee.name,
        "issuer": grantee.issuer,
        "rights": share.rights.value,
        "expires_at": timestamp(share.expires_at),
    }


def describe_shared(record: SessionRecord, rights: ShareRights) -> dict[str, Any]:
    """Return a stored session as a caller sees it with whom it is shared."""
    owner = Principal.of_key(record.owner)
    return {
        **describe(record, record.status, record.used_at),
        "owner": {"subject": owner.subject, "issuer": owner.issuer},
        "rights": rights.value,
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
