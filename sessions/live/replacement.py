"""Replacements of connections: their reasons, and the notices of them for the next result."""

from __future__ import annotations

from typing import Final

from ..attribution import LAST_WORDS, NOTE
from ..records import BindingRecord, BindingStatus
from ..services import RestoreReport
from .contention import CONTENDED

STOPPED: Final = "Statehold was stopped"
"""The `last_error` of a binding whose connection was closed because the process ended."""
PAUSE_REASONS: Final = frozenset({STOPPED, CONTENDED})
"""Reasons of pauses that are no errors: they end when the connection is open again."""


def replacement_notice(
    before: BindingRecord, generation: int, report: RestoreReport, earlier: str = ""
) -> str:
    """Return the notice for the first result over a replaced connection.

    `earlier` names what was lost with previous connections and was not reported to a caller.
    """
    reason = "it was paused"
    if before.status is BindingStatus.PAUSED and before.last_error in PAUSE_REASONS:
        reason = before.last_error
    elif before.status.missing:
        # The last words of the server must not be read as ours.
        reason = (before.last_error or "").partition(LAST_WORDS)[0].strip() or "it was lost"
        reason = reason.splitlines()[0][:200].rstrip(".")
    notice = (
        f"{NOTE}: the connection to {before.service} was replaced "
        f"(generation {max(before.told_generation, 1)} to {generation}; {reason})."
    )
    more = f" Lost before that: {earlier}." if earlier else ""
    return notice + _describe_restored(report) + more


def unreported_notice(record: BindingRecord, losses: str) -> str:
    """Return the notice for a connection that an earlier process replaced, and ended before it reported that.

    `losses` names what is known to be lost.
    """
    reason = "the server was restarted before it reported this"
    before = record.model_copy(update={"status": BindingStatus.LOST, "last_error": reason})
    report = RestoreReport(lost=losses or "what the earlier connection held")
    return replacement_notice(before, record.generation, report)


def copy_notice(service: str, report: RestoreReport) -> str:
    """Return the notice for the first result over a connection that began as a copy of another session's."""
    notice = f"{NOTE}: the connection to {service} began as a copy of another session's."
    return notice + _describe_restored(report)


def _describe_restored(report: RestoreReport) -> str:
    restored = f" Restored: {report.restored}." if report.restored else ""
    return f"{restored} Lost: {report.lost or 'nothing that is known'}."
