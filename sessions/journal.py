"""What goes into the journal: one entry per call and per transition, capped and without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from .errors import SessionError
from .records import JournalKind, JournalRecord
from .services import CallResult

REDACTED = "[redacted]"
LEVELS = 50
"""Levels of a value that are kept."""


def redacted(value: object, keys: frozenset[str], levels: int = LEVELS) -> object:
    """Return a copy of a JSON value in which every value under one of `keys` (lower case) is replaced.

    What is nested deeper than `levels` becomes "...".
    """
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return "..."
    if isinstance(value, dict):
        return {
            key: REDACTED if str(key).lower() in keys else redacted(item, keys, levels - 1)
            for key, item in cast("dict[str, object]", value).items()
        }
    return [redacted(item, keys, levels - 1) for item in cast("list[object]", value)]


def capped(value: object, limit: int) -> object:
    """Return a JSON value as it is when its text takes at most `limit` bytes, else the start of its text and its size."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        return {"unencodable": True}
    if len(text) <= limit:
        return value
    return {"truncated": text[:limit].decode(errors="ignore"), "bytes": len(text)}


def brief(result: CallResult) -> dict[str, Any]:
    """Return what the journal keeps of a result: its texts as far as they are short, and the kinds of the rest."""
    blocks = result.payload.get("content")
    kept: list[Any] = []
    for block in cast("list[Any]", blocks)[:20] if isinstance(blocks, list) else []:
        entry = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        text = entry.get("text")
        kept.append(text[:500] if isinstance(text, str) else {"type": entry.get("type")})
    return {"content": kept, "is_error": result.is_error}


def call_entry(
    *,
    session_id: str,
    epoch: int,
    seq: int,
    service: str,
    tool: str,
    arguments: Mapping[str, Any],
    started: float,
    ended: float,
    generation: int,
    outcome: CallResult | BaseException,
    operation_id: str | None,
    limit: int,
    keys: frozenset[str],
) -> JournalRecord:
    """Return the entry of a finished call."""
    result, error = (None, outcome) if isinstance(outcome, BaseException) else (outcome, None)
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.CALL,
        epoch=epoch,
        service=service,
        tool=tool,
        status=_status(outcome),
        run=None,
        role=None,
        operation_id=operation_id,
        started_at=started,
        ended_at=ended,
        generation=generation,
        request=capped(redacted(dict(arguments), keys), limit),
        result=None if result is None else capped(brief(result), limit),
        error=error.message if isinstance(error, SessionError) else None,
    )


def transition_entry(
    *,
    session_id: str,
    epoch: int,
    seq: int,
    at: float,
    code: str,
    event: str,
    source: str | None,
    target: str,
    cause: str | None,
) -> JournalRecord:
    """Return the entry of a transition of the lifecycle table, with its cause."""
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.TRANSITION,
        epoch=epoch,
        service=None,
        tool=None,
        status=target,
        run=None,
        role=None,
        operation_id=None,
        started_at=at,
        ended_at=at,
        generation=0,
        request={"code": code, "event": event, "from": source, "to": target, "cause": cause},
        result=None,
        error=None,
    )


def _status(outcome: CallResult | BaseException) -> str:
    if isinstance(outcome, CallResult):
        return "error" if outcome.is_error else "ok"
    return outcome.code if isinstance(outcome, SessionError) else "cancelled"


__all__ = ["brief", "call_entry", "capped", "redacted", "transition_entry"]
