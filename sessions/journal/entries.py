"""Journal entries of calls, transitions and messages, capped and without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Final, Literal, TypeAlias, cast
from weakref import WeakValueDictionary

import anyio
import orjson
from anyio import CapacityLimiter, to_thread

from ..concurrency import BackgroundTasks
from ..errors import SessionError
from ..json_codec import JSON, dumps, loads, room_left
from ..records import ControlLease, JournalKind, JournalRecord
from ..services import ToolResult, ToolSpec
from .facts import write_facts
from .redaction import REDACTED, Redactor
from .secret_texts import SLACK, SecretTexts, texts_under

TEXT = 500
"""Characters kept of each text of a result."""
MAX_BLOCKS = 20
"""Blocks kept of a result."""
OVERHEAD = 200
"""Bytes counted for an entry besides its texts."""
LARGE = 4
"""Arguments of at most this many times the limit of an entry are redacted as a whole."""
CAUSE = 1000
"""Characters kept of the cause of a transition."""
SMALL = 2000
"""Characters of arguments and result that are redacted within a millisecond or two."""
LinkEvent: TypeAlias = Literal["created", "opened", "revoked"]
"""The events of a link for a guest that the journal has."""
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


@dataclass(slots=True)
class Excerpt:
    """The part of a result that its entry shows, so that the rest need not be held until the entry is written."""

    status: str
    blocks: list[str | dict[str, str | None]]
    """The beginnings of the first texts, and the types and addresses of other blocks."""
    extent: dict[str, Any]
    """The lengths of the texts that are cut (`cut`), by their positions, and the number of further blocks (`left_out`)."""
    secrets: Sequence[str] | None
    facts: JSON | None
    """See ToolResult."""

    def shorten(self, redactor: Redactor, secrets: SecretTexts = NO_SECRETS) -> dict[str, Any]:
        """Return the result as the journal keeps it. `secrets` are those of the arguments, which results often repeat."""

        def show(text: str) -> str:
            if secrets is not NO_SECRETS:
                text = secrets.hide(text, was_cut=len(text) == TEXT + SLACK)
            return redactor.beginning(text, TEXT)

        content = [
            show(block)
            if isinstance(block, str)
            else {key: value and show(value) for key, value in block.items()}
            for block in self.blocks
        ]
        return {"content": content, "is_error": self.status == "error", **self.extent}


def excerpt(result: ToolResult) -> Excerpt:
    """Return the part of a result that its journal entry shows."""
    content = result.payload.get("content")
    all_blocks = cast("list[object]", content) if isinstance(content, list) else []
    blocks: list[str | dict[str, str | None]] = []
    lengths: dict[str, int] = {}
    for number, block in enumerate(all_blocks[:MAX_BLOCKS]):
        fields = cast("dict[str, object]", block) if isinstance(block, dict) else {}
        text = fields.get("text")
        if not isinstance(text, str):
            blocks.append(_reference(fields))
            continue
        blocks.append(text[: TEXT + SLACK])
        if len(text) > TEXT:
            lengths[str(number)] = len(text)
    extent: dict[str, Any] = {"cut": lengths} if lengths else {}
    if len(all_blocks) > MAX_BLOCKS:
        extent["left_out"] = len(all_blocks) - MAX_BLOCKS
    return Excerpt(status_of(result), blocks, extent, result.secrets, result.facts)


def _reference(fields: Mapping[str, object]) -> dict[str, str | None]:
    """Return the type and the address of a block without text."""
    named = {key: fields.get(key) for key in ("type", "uri") if key in fields or key == "type"}
    return {
        key: value[: TEXT + SLACK] if isinstance(value, str) else None
        for key, value in named.items()
    }


@dataclass(slots=True)
class CallEntry:
    """A finished or starting call, as the journal will have it. `outcome` is None for a starting call.

    A change of the state is written like a call, of the kind `state`.

    It costs next to nothing until `redact` or `values` is called, which may be in another thread. Until then it holds on to
    the arguments of the call.
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
    outcome: Excerpt | BaseException | None
    operation_id: str | None
    run: str | None
    limit: int
    redactor: Redactor
    spec: ToolSpec | None = field(default=None, kw_only=True)
    """The service's description of the tool, if there is one."""
    kind: JournalKind = field(default=JournalKind.CALL, kw_only=True)
    _texts: tuple[str, str | None, str | None, str | None] | None = field(default=None, init=False)
    """Request, result, error and facts, once they are computed."""
    _room: int | None = field(default=None, init=False)
    """SMALL less the characters and members of arguments and result, once they are counted; negative if it is used up."""

    def values(self) -> dict[str, Any]:
        """Return the fields of the entry: capped, and without secrets. Request, result and facts are JSON already."""
        if self._texts is None:
            self.redact()
        assert self._texts is not None
        request, result, error, facts = self._texts
        outcome = self.outcome
        return {
            "session_id": self.session_id,
            "seq": self.seq,
            "kind": self.kind,
            "epoch": self.epoch,
            "service": self.service,
            "tool": self.tool,
            "status": outcome.status if isinstance(outcome, Excerpt) else _status_without(outcome),
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
        if self._room is None:
            room, outcome = room_left(self.arguments, SMALL), self.outcome
            if isinstance(outcome, Excerpt):
                room -= sum(map(len, outcome.blocks)) + sum(map(len, outcome.secrets or ()))
                if outcome.facts is not None:
                    room -= len(_json(outcome.facts) or b"")
            self._room = room
        return self._room

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
        if isinstance(self.outcome, Excerpt) and self.outcome.secrets is not None:
            secrets = SecretTexts(self.outcome.secrets)
        elif self.spec is None or not self.spec.secret:
            secrets = NO_SECRETS
        else:
            secrets = SecretTexts(texts_under(self.spec.secret, self.arguments))
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
        if isinstance(outcome, Excerpt):
            result = cap_json(outcome.shorten(redactor, secrets), limit)
            facts = outcome.facts
            return result, None, None if facts is None else write_facts(facts, redactor, secrets)
        if isinstance(outcome, SessionError):
            return None, redactor.text_without(secrets, outcome.message, limit), None
        return None, None, None

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


def link_entry(
    session_id: str,
    epoch: int,
    seq: int,
    *,
    at: float,
    event: LinkEvent,
    link: str,
    by: str,
    rights: str,
) -> JournalRecord:
    """Return the entry of a link for a guest. `by`, whose text is redacted already, is the person who did it."""
    return JournalRecord.model_construct(
        session_id=session_id,
        seq=seq,
        kind=JournalKind.CONTROL,
        epoch=epoch,
        status=f"link_{event}",
        started_at=at,
        ended_at=at,
        request={"link": link, "by": by, "rights": rights},
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
        if outcome.payload.get("resultType") == INPUT_REQUIRED:
            return INPUT_REQUIRED
        return "error" if outcome.payload.get("isError") is True else "ok"
    return _status_without(outcome)


def _status_without(error: BaseException | None) -> str:
    """Return the outcome of a call without a result, None while it runs."""
    if error is None:
        return STARTED
    return error.code if isinstance(error, SessionError) else "cancelled"


MAX_THREADS: Final = 2
SECONDS: Final = 5.0
"""Seconds that a call waits for the redaction of its entry. After them, its texts are left out of the journal."""


class Redactions:
    """Redacts for all principals, one value of each at a time. It has nothing to close."""

    def __init__(self, redactor: Redactor, tasks: BackgroundTasks) -> None:
        self._redactor = redactor
        self._tasks = tasks
        self._threads = CapacityLimiter(MAX_THREADS)
        self._turns = WeakValueDictionary[str, anyio.Lock]()
        """By principal; a lock lives while somebody holds it or waits for it."""

    async def redact(self, entry: CallEntry, owner: str) -> None:
        """Redact a large entry of a principal's call, within SECONDS; the writer redacts a small one. Never cancelled."""
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
