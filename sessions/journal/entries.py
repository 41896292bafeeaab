"""Journal entries of calls, transitions and messages, capped and without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from ..errors import SessionError
from ..json_codec import dumps, loads
from ..records import JournalKind, JournalRecord
from ..services import CallResult, ToolSpec
from .redaction import REDACTED, SLACK, Redactor, SecretTexts, texts_under

TEXT = 500
"""Characters kept of each text of a result."""
BLOCKS = 20
"""Blocks kept of a result."""
OVERHEAD = 200
"""Bytes counted for an entry besides its texts."""
LARGE = 4
"""Arguments of at most this many times the limit of an entry are redacted as a whole."""
CAUSE = 1000
"""Characters kept of the cause of a transition."""
STARTED = "started"
"""Status of a call whose end is not written yet."""
INPUT_REQUIRED = "input_required"
"""Status of a call that its caller must send again, with answers."""
CUT = ('{"truncated":', '{"unencodable":')
"""Beginnings of arguments that are not kept completely."""
NO_SECRETS = SecretTexts(())


def cap_json(value: object, limit: int) -> str:
    """Return a JSON value as text if that takes at most `limit` bytes, else its beginning and its size."""
    text = _json(value)
    if text is None:
        return '{"unencodable":true}'
    return text.decode() if len(text) <= limit else _truncate(text, limit, len(text))


def _json(value: object) -> bytes | None:
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        pass
    try:
        # Integers of more than 64 bits, and half a surrogate pair.
        return dumps(value).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _truncate(text: bytes, limit: int, size: int) -> str:
    excerpt_fields = {"truncated": text[:limit].decode(errors="ignore"), "bytes": size}
    return orjson.dumps(excerpt_fields).decode()


def _request(arguments: Mapping[str, Any], limit: int, redactor: Redactor) -> str:
    """Return arguments as the journal keeps them: at most `limit` bytes, with work in proportion to that."""
    if not arguments:
        return "{}"
    arguments_dict = dict(arguments)
    whole = _json(arguments_dict)
    if whole is None:
        return cap_json(redactor.value(arguments_dict, limit, room=LARGE * limit), limit)
    if len(whole) <= LARGE * limit:
        redacted = redactor.value(arguments_dict, limit)
        return (
            whole.decode()
            if redacted == arguments_dict and len(whole) <= limit
            else cap_json(redacted, limit)
        )
    text = _json(redactor.value(arguments_dict, limit, room=limit)) or b""
    return _truncate(text, limit, len(whole))


def excerpt(result: CallResult) -> CallResult:
    """Return the part of a result that brief() reads, so that the rest need not be held until then."""
    payload = result.payload
    content = [
        {"text": block} if isinstance(block, str) else block for block in _first_blocks(payload)
    ]
    outcome = {"isError": payload.get("isError"), "resultType": payload.get("resultType")}
    return CallResult({"content": content, **outcome}, result.secrets)


def shorten_result(
    result: CallResult, redactor: Redactor, secrets: SecretTexts = NO_SECRETS
) -> dict[str, Any]:
    """Return a result as the journal keeps it: the beginnings of its texts, and the types of other blocks.

    `secrets` are secrets of the arguments, which results often repeat.
    """
    blocks = [
        redactor.beginning(secrets.hide(block, was_cut=len(block) == TEXT + SLACK), TEXT)
        if isinstance(block, str)
        else {"type": block["type"] and redactor.beginning(block["type"], TEXT)}
        for block in _first_blocks(result.payload)
    ]
    return {"content": blocks, "is_error": result.is_error}


def _first_blocks(payload: Mapping[str, Any]) -> Iterator[str | dict[str, str | None]]:
    """Yield the first blocks of a result: the beginnings of their texts, and the types of other blocks."""
    blocks = payload.get("content")
    for block in cast("list[Any]", blocks)[:BLOCKS] if isinstance(blocks, list) else ():
        entry = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        text = entry.get("text")
        if isinstance(text, str):
            yield text[: TEXT + SLACK]
        else:
            kind = entry.get("type")
            yield {"type": kind[: TEXT + SLACK] if isinstance(kind, str) else None}


@dataclass(slots=True)
class CallEntry:
    """A finished or starting call, as the journal will have it. `outcome` is None for a starting call.

    It costs next to nothing until `values` is called, which may be in another thread. Until then it holds on to the
    arguments of the call and to the given result; an excerpt() of the result suffices.
    """

    session_id: str
    node: str
    epoch: int
    seq: int
    service: str
    tool: str
    arguments: Mapping[str, Any]
    started_at: float
    ended_at: float | None
    generation: int
    outcome: CallResult | BaseException | None
    operation_id: str | None
    run: str | None
    limit: int
    redactor: Redactor
    spec: ToolSpec | None = field(default=None, kw_only=True)
    """The service's description of the tool, if there is one."""

    def values(self) -> dict[str, Any]:
        """Return the fields of the entry: capped, and without secrets. Request and result are JSON already."""
        outcome, limit, redactor = self.outcome, self.limit, self.redactor
        secrets = self._secrets()
        arguments, secret_texts = self.arguments, NO_SECRETS
        if secrets:
            arguments = cast("dict[str, Any]", SecretTexts(secrets).within(arguments))
        request = _request(arguments, limit, redactor)
        if REDACTED in request or request.startswith(CUT):
            secrets = [*secrets, *redactor.secret_texts(arguments, room=LARGE * limit)]
        if secrets:
            secret_texts = SecretTexts(secrets)
        return {
            "session_id": self.session_id,
            "seq": self.seq,
            "kind": JournalKind.CALL,
            "epoch": self.epoch,
            "service": self.service,
            "tool": self.tool,
            "status": STARTED if outcome is None else status_of(outcome),
            "run": self.run,
            "role": None,
            "operation_id": self.operation_id,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "generation": self.generation,
            "request": request,
            "result": cap_json(shorten_result(outcome, redactor, secret_texts), limit)
            if isinstance(outcome, CallResult)
            else None,
            "error": redactor.text(secret_texts.hide(outcome.message), limit)
            if isinstance(outcome, SessionError)
            else None,
        }

    def _secrets(self) -> Sequence[str]:
        if isinstance(self.outcome, CallResult) and self.outcome.secrets is not None:
            return self.outcome.secrets
        return () if self.spec is None else list(texts_under(self.spec.secret, self.arguments))

    def record(self) -> JournalRecord:
        """Return the entry as a record."""
        values = self.values()
        for key in ("request", "result"):
            if values[key] is not None:
                values[key] = loads(values[key])
        return JournalRecord.model_construct(**values)


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
        status=target,
        started_at=at,
        ended_at=at,
        request={
            "code": code,
            "event": event,
            "from": source,
            "to": target,
            "cause": None if cause is None else redactor.text(cause, CAUSE),
        },
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
    """Return the entry of a message."""
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.MESSAGE,
        epoch=epoch,
        run=run,
        role=role,
        started_at=at,
        ended_at=at,
        request={"content": redactor.text(content)},
    )


def status_of(outcome: CallResult | BaseException) -> str:
    """Return the outcome of a call, in one word."""
    if isinstance(outcome, CallResult):
        if outcome.input_required:
            return INPUT_REQUIRED
        return "error" if outcome.is_error else "ok"
    return outcome.code if isinstance(outcome, SessionError) else "cancelled"


__all__ = [
    "INPUT_REQUIRED",
    "OVERHEAD",
    "STARTED",
    "CallEntry",
    "shorten_result",
    "cap_json",
    "excerpt",
    "message_entry",
    "status_of",
    "transition_entry",
]
