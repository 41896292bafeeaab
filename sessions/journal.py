"""What goes into the journal: one entry per call and per transition, capped and without secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from .errors import SessionError
from .records import JournalKind, JournalRecord
from .redaction import SLACK, Redactor
from .services import CallResult

TEXT = 500
"""Characters that are kept of each text of a result."""
OVERHEAD = 200
"""Bytes that an entry is counted with besides what was said."""
LARGE = 4
"""How often the limit of an entry arguments may take to be looked at as a whole."""
CAUSE = 1000
"""Characters that are kept of the cause of a transition."""
STARTED = "started"
"""The status of a call of which only the beginning is written."""
INPUT_REQUIRED = "input_required"
"""The status of a call whose caller has to send it again, with answers."""


def capped(value: object, limit: int) -> object:
    """Return a JSON value as it is when its text takes at most `limit` bytes, else the start of its text and its size."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        return {"unencodable": True}
    if len(text) <= limit:
        return value
    return {"truncated": text[:limit].decode(errors="ignore"), "bytes": len(text)}


def _request(arguments: Mapping[str, Any], limit: int, redactor: Redactor) -> object:
    """Return what the journal keeps of arguments: as much as `limit` bytes hold, and no more work than that takes."""
    given = dict(arguments)
    try:
        size = len(orjson.dumps(given, option=orjson.OPT_NON_STR_KEYS))
    except (orjson.JSONEncodeError, RecursionError):
        return capped(redactor.value(given, limit, room=LARGE * limit), limit)
    if size <= LARGE * limit:
        return capped(redactor.value(given, limit), limit)
    text = orjson.dumps(redactor.value(given, limit, room=limit), option=orjson.OPT_NON_STR_KEYS)
    return {"truncated": text[:limit].decode(errors="ignore"), "bytes": size}


def brief(result: CallResult, redactor: Redactor) -> dict[str, Any]:
    """Return what the journal keeps of a result: its texts as far as they are short, and the kinds of the rest."""
    return _clean(_beginnings(result), redactor)


def _beginnings(result: CallResult) -> dict[str, Any]:
    """Return what brief() keeps, as it is: secrets and all."""
    blocks = result.payload.get("content")
    kept: list[Any] = []
    for block in cast("list[Any]", blocks)[:20] if isinstance(blocks, list) else []:
        entry = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        text = entry.get("text")
        kept.append(text[: TEXT + SLACK] if isinstance(text, str) else {"type": entry.get("type")})
    return {"content": kept, "is_error": result.is_error}


def _clean(brief: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    content = [
        redactor.beginning(kept, TEXT) if isinstance(kept, str) else kept
        for kept in brief["content"]
    ]
    return {**brief, "content": content}


def call_entry(
    *,
    session_id: str,
    epoch: int,
    seq: int,
    service: str,
    tool: str,
    arguments: Mapping[str, Any],
    started: float,
    ended: float | None,
    generation: int,
    outcome: CallResult | BaseException | None,
    operation_id: str | None,
    run: str | None = None,
    limit: int,
    redactor: Redactor,
) -> Callable[[], JournalRecord]:
    """Return what makes the entry of a finished call, or of one that begins when there is no outcome.

    Most of the work is in making it, which may be done in another thread. What is held until then is small, but for the
    arguments.
    """
    status = STARTED if outcome is None else status_of(outcome)
    result = _beginnings(outcome) if isinstance(outcome, CallResult) else None
    error = outcome.message if isinstance(outcome, SessionError) else None

    def make() -> JournalRecord:
        return JournalRecord.model_construct(
            session_id=session_id,
            seq=seq,
            kind=JournalKind.CALL,
            epoch=epoch,
            service=service,
            tool=tool,
            status=status,
            run=run,
            role=None,
            operation_id=operation_id,
            started_at=started,
            ended_at=ended,
            generation=generation,
            request=_request(arguments, limit, redactor),
            result=None if result is None else capped(_clean(result, redactor), limit),
            error=None if error is None else redactor.text(error, limit),
        )

    return make


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
    redactor: Redactor,
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
        request={
            "code": code,
            "event": event,
            "from": source,
            "to": target,
            "cause": None if cause is None else redactor.text(cause, CAUSE),
        },
        result=None,
        error=None,
    )


def message_entry(
    *,
    session_id: str,
    epoch: int,
    seq: int,
    at: float,
    role: str,
    content: str,
    run: str | None,
    redactor: Redactor,
) -> JournalRecord:
    """Return the entry of something that was said."""
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.MESSAGE,
        epoch=epoch,
        service=None,
        tool=None,
        status=None,
        run=run,
        role=role,
        operation_id=None,
        started_at=at,
        ended_at=at,
        generation=0,
        request={"content": redactor.text(content)},
        result=None,
        error=None,
    )


def status_of(outcome: CallResult | BaseException) -> str:
    """Return what became of a call, in one word."""
    if isinstance(outcome, CallResult):
        if outcome.input_required:
            return INPUT_REQUIRED
        return "error" if outcome.is_error else "ok"
    return outcome.code if isinstance(outcome, SessionError) else "cancelled"


__all__ = [
    "INPUT_REQUIRED",
    "OVERHEAD",
    "STARTED",
    "brief",
    "call_entry",
    "capped",
    "message_entry",
    "status_of",
    "transition_entry",
]
