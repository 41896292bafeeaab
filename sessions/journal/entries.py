"""Journal entries of calls, transitions and messages, capped and without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import anyio
import orjson
from anyio import CapacityLimiter, to_thread

from ..concurrency import BackgroundTasks
from ..errors import SessionError
from ..json_codec import dumps, loads, room_left
from ..records import ControlLease, JournalKind, JournalRecord
from ..services import ToolResult, ToolSpec
from .facts import write_facts
from .redaction import REDACTED, Redactor
from .secret_texts import LEVELS, SLACK, SecretTexts, texts_under

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
SMALL = 2000
"""Characters of arguments and result that are redacted within a millisecond or two."""
STARTED = "started"
"""Status of a call whose end is not written yet."""
RUNNING = "running"
"""Status of a run that has not ended."""
INPUT_REQUIRED = "input_required"
"""Status of a call that its caller must send again, with answers."""
CUT = ('{"truncated":', '{"unencodable":')
"""Beginnings of arguments that are not kept completely."""
WITHHELD = '{"withheld":true}'
"""Arguments whose secrets could not be found within the bounds of time and size."""
NO_SECRETS = SecretTexts(())
_texts_lock = Lock()
_CUT = "statehold/cut"
"""The member of an excerpt() for what shorten_result() could not find out from it."""


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


def _request(
    arguments: Mapping[str, Any], limit: int, redactor: Redactor, secrets: SecretTexts
) -> str:
    """Return arguments as the journal keeps them: at most `limit` bytes, with work in proportion to that."""
    if not secrets.complete:
        return WITHHELD
    if not arguments:
        return "{}"
    arguments_dict = dict(arguments)
    value = partial(redactor.value, arguments_dict, limit, secrets=secrets)
    whole = _json(arguments_dict)
    if whole is None:
        return cap_json(value(room=LARGE * limit), limit)
    if len(whole) <= LARGE * limit:
        redacted = value()
        return (
            whole.decode()
            if redacted == arguments_dict and len(whole) <= limit
            else cap_json(redacted, limit)
        )
    text = _json(value(room=limit)) or b""
    return _truncate(text, limit, len(whole))


def excerpt(result: ToolResult) -> ToolResult:
    """Return the part of a result that shorten_result() reads, so that the rest need not be held until then."""
    payload = result.payload
    content = [
        {"text": block} if isinstance(block, str) else block for block in _first_blocks(payload)
    ]
    outcome = {"isError": payload.get("isError"), "resultType": payload.get("resultType")}
    shown = {"content": content, **outcome, _CUT: _extent(payload)}
    return ToolResult(shown, result.secrets, facts=result.facts)


def shorten_result(
    result: ToolResult, redactor: Redactor, secrets: SecretTexts = NO_SECRETS
) -> dict[str, Any]:
    """Return a result as the journal keeps it: the beginnings of its texts, and types and addresses of other blocks.

    `cut` has the lengths of the texts that were cut, by their positions, and `left_out` the number of further blocks.
    `secrets` are secrets of the arguments, which results often repeat.
    """

    def show(text: str) -> str:
        return redactor.beginning(secrets.hide(text, was_cut=len(text) == TEXT + SLACK), TEXT)

    blocks = [
        show(block)
        if isinstance(block, str)
        else {key: value and show(value) for key, value in block.items()}
        for block in _first_blocks(result.payload)
    ]
    extent = result.payload.get(_CUT)
    extent = _extent(result.payload) if extent is None else extent
    return {"content": blocks, "is_error": result.is_error, **extent}


def _extent(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lengths of the texts of a result that are cut, and the number of blocks that are left out, if any."""
    content = payload.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    cut = {
        str(number): len(text)
        for number, block in enumerate(blocks[:BLOCKS])
        if isinstance(block, dict)
        and isinstance(text := cast("dict[str, Any]", block).get("text"), str)
        and len(text) > TEXT
    }
    left_out = len(blocks) - BLOCKS
    return {**({"cut": cut} if cut else {}), **({"left_out": left_out} if left_out > 0 else {})}


def _first_blocks(payload: Mapping[str, Any]) -> Iterator[str | dict[str, str | None]]:
    """Yield the first blocks of a result: the beginnings of their texts, types and addresses of other blocks."""
    blocks = payload.get("content")
    for block in cast("list[Any]", blocks)[:BLOCKS] if isinstance(blocks, list) else ():
        entry = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        text = entry.get("text")
        if isinstance(text, str):
            yield text[: TEXT + SLACK]
        else:
            named = {
                key: entry.get(key) for key in ("type", "uri") if key in entry or key == "type"
            }
            yield {
                key: value[: TEXT + SLACK] if isinstance(value, str) else None
                for key, value in named.items()
            }


@dataclass(slots=True)
class CallEntry:
    """A finished or starting call, as the journal will have it. `outcome` is None for a starting call.

    A change of the state is written like a call, of the kind `state`.

    It costs next to nothing until `redact` or `values` is called, which may be in another thread. Until then it holds on to
    the arguments of the call and to the given result; an excerpt() of the result suffices.
    """

    session_id: str
    node: str
    epoch: int
    seq: int
    service: str | None
    tool: str
    arguments: Mapping[str, Any]
    started_at: float
    ended_at: float | None
    generation: int
    outcome: ToolResult | BaseException | None
    operation_id: str | None
    run: str | None
    limit: int
    redactor: Redactor
    spec: ToolSpec | None = field(default=None, kw_only=True)
    """The service's description of the tool, if there is one."""
    kind: JournalKind = field(default=JournalKind.CALL, kw_only=True)
    _texts: tuple[str, str | None, str | None, str | None] | None = field(default=None, init=False)
    """Request, result, error and facts, once they are computed."""

    def values(self) -> dict[str, Any]:
        """Return the fields of the entry: capped, and without secrets. Request, result and facts are JSON already."""
        if self._texts is None:
            self.redact()
        assert self._texts is not None
        request, result, error, facts = self._texts
        return {
            "session_id": self.session_id,
            "seq": self.seq,
            "kind": self.kind,
            "epoch": self.epoch,
            "service": self.service,
            "tool": self.tool,
            "status": STARTED if self.outcome is None else status_of(self.outcome),
            "run": self.run,
            "role": None,
            "operation_id": self.operation_id,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "generation": self.generation,
            "request": request,
            "result": result,
            "error": error,
            "facts": facts,
        }

    def is_small(self) -> bool:
        """Whether redact() takes next to no time, or is done."""
        return self._texts is not None or self._room_left() >= 0

    def _room_left(self) -> int:
        """Return SMALL less its characters and members; a negative number once it is used up."""
        room = room_left(self.arguments, SMALL, levels=LEVELS)
        if isinstance(self.outcome, ToolResult):
            room -= sum(len(block) for block in _first_blocks(self.outcome.payload))
            room -= sum(map(len, self.outcome.secrets or ()))
            if self.outcome.facts is not None:
                room = room_left(self.outcome.facts, room, levels=LEVELS)
        return room

    def approximate_bytes(self) -> int:
        """Return about the bytes that it takes in the store."""
        if self._texts is None:
            return OVERHEAD + SMALL - max(0, self._room_left())
        return OVERHEAD + sum(len(text or "") for text in self._texts)

    def redact(self) -> None:
        """Compute the texts of the entry, in bounded time; no effect once they are withheld.

        A text that has too many secrets is left out as a whole.
        """
        limit, redactor = self.limit, self.redactor
        secrets = self._secrets()
        request = _request(self.arguments, limit, redactor, secrets)
        if REDACTED in request or request.startswith(CUT):
            secrets = secrets.joined(redactor.secret_texts(self.arguments))
        self._set_texts((request, *self._outcome_texts(secrets)))

    def withhold(self) -> None:
        """Leave out the texts of the entry, if they are not computed yet."""
        if self._texts is None:
            self._set_texts((WITHHELD, *self._outcome_texts(SecretTexts(None))))

    def _set_texts(self, texts: tuple[str, str | None, str | None, str | None]) -> None:
        with _texts_lock:
            self._texts = self._texts or texts

    def _outcome_texts(self, secrets: SecretTexts) -> tuple[str | None, str | None, str | None]:
        """Return the result, the error and the facts of the call."""
        outcome, limit, redactor = self.outcome, self.limit, self.redactor
        if isinstance(outcome, ToolResult):
            result = cap_json(shorten_result(outcome, redactor, secrets), limit)
            facts = outcome.facts
            return result, None, None if facts is None else write_facts(facts, redactor, secrets)
        if isinstance(outcome, SessionError):
            return None, redactor.text_without(secrets, outcome.message, limit), None
        return None, None, None

    def _secrets(self) -> SecretTexts:
        if isinstance(self.outcome, ToolResult) and self.outcome.secrets is not None:
            return SecretTexts(self.outcome.secrets)
        if self.spec is None or not self.spec.secret:
            return NO_SECRETS
        return SecretTexts(texts_under(self.spec.secret, self.arguments))

    def record(self) -> JournalRecord:
        """Return the entry as a record."""
        values = self.values()
        for key in ("request", "result", "facts"):
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


def control_entry(session_id: str, epoch: int, seq: int, lease: ControlLease) -> JournalRecord:
    """Return the entry of a change of control, whose texts are redacted already."""
    end = lease.end
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.CONTROL,
        epoch=epoch,
        status=lease.driver.value if end is None else end.value,
        started_at=lease.since,
        ended_at=lease.since,
        request={
            "driver": lease.driver.value,
            "control_epoch": lease.epoch,
            "holder": lease.holder,
            "reason": lease.reason,
            "reply": lease.reply,
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
) -> JournalRecord:
    """Return the entry of a message, whose content is redacted already."""
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.MESSAGE,
        epoch=epoch,
        run=run,
        role=role,
        started_at=at,
        ended_at=at,
        request={"content": content},
    )


def run_entry(
    *,
    session_id: str,
    epoch: int,
    seq: int,
    run: str,
    status: str,
    started_at: float,
    ended_at: float | None = None,
    error: str | None = None,
) -> JournalRecord:
    """Return the entry of a run, whose error is redacted already."""
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.RUN,
        epoch=epoch,
        status=status,
        run=run,
        started_at=started_at,
        ended_at=ended_at,
        error=error,
    )


def status_of(outcome: ToolResult | BaseException) -> str:
    """Return the outcome of a call, in one word."""
    if isinstance(outcome, ToolResult):
        if outcome.input_required:
            return INPUT_REQUIRED
        return "error" if outcome.is_error else "ok"
    return outcome.code if isinstance(outcome, SessionError) else "cancelled"


THREADS: Final = 2
SECONDS: Final = 5.0
"""Seconds that a call waits for the redaction of its entry. After them, its texts are left out of the journal."""


class Redactions:
    """Redacts for all principals, one value of each at a time. It has nothing to close."""

    def __init__(self, redactor: Redactor, tasks: BackgroundTasks) -> None:
        self._redactor = redactor
        self._tasks = tasks
        self._threads = CapacityLimiter(THREADS)
        self._turns = WeakValueDictionary[str, anyio.Lock]()
        """By principal; a lock lives while somebody holds it or waits for it."""

    async def redact(self, entry: CallEntry, owner: str) -> None:
        """Redact a large entry of a call of a principal, within SECONDS. Cancellation does not interrupt it.

        A small entry is left as it is, to be redacted by the writer.
        """
        if entry.is_small():
            return
        if self._tasks.is_open:
            ended = anyio.Event()
            # A task of its own: a thread that is late keeps its place, and the turn of its principal, until it ends.
            self._tasks.spawn(self._redact, entry, owner, ended)
            with anyio.move_on_after(SECONDS, shield=True):
                await ended.wait()
        entry.withhold()

    async def _redact(self, entry: CallEntry, owner: str, ended: anyio.Event) -> None:
        try:
            async with self._turn(owner):
                if not entry.is_small():
                    await to_thread.run_sync(entry.redact, limiter=self._threads)
        finally:
            ended.set()

    async def prose(self, text: str, owner: str) -> str:
        """Return a text that a principal wrote without secrets, see Redactor.prose."""
        if len(text) <= SMALL:
            return self._redactor.prose(text)
        async with self._turn(owner):
            return await to_thread.run_sync(self._redactor.prose, text, limiter=self._threads)

    def _turn(self, owner: str) -> anyio.Lock:
        turn = self._turns.get(owner)
        if turn is None:
            turn = self._turns[owner] = anyio.Lock()
        return turn


__all__ = [
    "CallEntry",
    "INPUT_REQUIRED",
    "OVERHEAD",
    "RUNNING",
    "Redactions",
    "SMALL",
    "STARTED",
    "cap_json",
    "excerpt",
    "message_entry",
    "run_entry",
    "shorten_result",
    "status_of",
    "transition_entry",
]
