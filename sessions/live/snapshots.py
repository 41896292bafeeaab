"""Saving the connections of this node, on request and in checkpoints, and finding the snapshots again."""

from __future__ import annotations

import base64
import contextvars
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import anyio
import orjson

from ..concurrency import RaceLost, race
from ..core import Core
from ..errors import CallTimedOut, OutcomeUnknown, SessionError, StoreUnavailable
from ..journal.entries import INPUT_REQUIRED
from ..lifecycle import Status
from ..records import BindingRecord, HistoryFilter, JournalKind, JournalRecord, SnapshotRecord
from ..services import Snapshot
from .binding import Binding
from .connection import LiveConnection
from .session import LiveSession

logger = logging.getLogger("statehold.sessions")

SNAPSHOT_BOUND = 20.0
"""Seconds a service may take to save a connection, and seconds a snapshot waits for earlier calls."""

AFTERMATH_SECONDS = 30.0
"""Seconds after a call in which a page's own changes are saved soon. Some pages poll for ever."""

LATER_SECONDS = 60.0
"""Seconds that later changes of a page wait to be saved. If the page renews its login, the saved login becomes invalid."""

ECHO_SECONDS = 1.0
"""Seconds that a change soon after a call waits to be saved: a page uses an answer, such as a token, a moment later."""

RETRY_SECONDS = 300.0
"""Longest time until a failed checkpoint is taken again: the fault may stay, and there may be no further call."""

PAGE = 50
PAGES = 20
"""Page size and number of pages for reading the calls since a connection was last saved."""

UNSTORED = "it could not be stored"

SENT = frozenset(
    (
        "ok",
        "error",
        INPUT_REQUIRED,
        "cancelled",
        CallTimedOut.code,
        OutcomeUnknown.code,
    )
)
"""Journal statuses of calls that may have reached the server."""


class Snapshots:
    """Takes, stores and finds snapshots of this node's connections. It lives as long as the registry.

    All methods may be called concurrently. Only one snapshot of a connection is taken at a time, and none during a call
    when the service takes one call at a time.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def find(self, session: LiveSession, binding: Binding) -> Snapshot | None:
        """Return the snapshot to open a connection from, None when nothing was saved.

        Sets `binding.behind` to whether calls were made after it had been saved.

        Raises:
            StoreUnavailable: the store could not be read.
        """
        binding.snapshot_outdated = False
        if binding.service.pause != "snapshot" or not (
            binding.record.generation or session.record.parent
        ):
            return None
        record = await self._newest(session, binding)
        if record is None:
            return None
        binding.snapshot_seq = max(binding.snapshot_seq, record.seq)
        binding.snapshot_outdated = await self.is_outdated(session, binding, record)
        snapshot, unreported = _parts(record.data)
        if binding.record.told_generation < binding.record.generation:
            binding.unreported_losses = binding.unreported_losses or unreported
        return snapshot

    async def read(self, session: LiveSession, binding: Binding) -> Snapshot | None:
        """Return the newest snapshot, None when nothing was saved. No connection is opened from it.

        Raises:
            StoreUnavailable: the store could not be read.
        """
        record = await self._newest(session, binding)
        return None if record is None else _parts(record.data)[0]

    async def _newest(self, session: LiveSession, binding: Binding) -> SnapshotRecord | None:
        record = await self._core.store.snapshot(session.id, binding.service.name)
        refused = binding.unstored_snapshot
        if refused is not None and (record is None or refused.seq > record.seq):
            return refused
        return record

    async def is_outdated(
        self, session: LiveSession, binding: Binding, record: SnapshotRecord
    ) -> bool:
        """Return whether calls that may have changed something followed `record` over a lost connection.

        Return False when the journal cannot be read, so that the connection is opened all the same.
        """
        if not binding.record.status.missing:
            return False
        try:
            await self._core.store.flush()
        except StoreUnavailable:
            # The journal lacks the last calls.
            if binding.unsaved_at > record.taken_at:
                return True
        try:
            return await self._called_since(session, binding, record.taken_at)
        except StoreUnavailable as error:
            logger.warning("session %s: what was not saved is not known: %s", session.id, error)
            return False

    async def _called_since(self, session: LiveSession, binding: Binding, since: float) -> bool:
        before: int | None = None
        for _ in range(PAGES):
            history_filter = HistoryFilter(kinds=[JournalKind.CALL], before=before, limit=PAGE)
            entries = await self._core.store.history(session.id, history_filter)
            later_entries = [
                entry for entry in entries if (entry.ended_at or entry.started_at) > since
            ]
            if any(_may_have_changed(binding, entry) for entry in later_entries):
                return True
            if len(entries) < PAGE or not later_entries:
                return False
            before = entries[0].seq
        return False

    async def take(
        self, session: LiveSession, binding: Binding, *, light: bool = False
    ) -> SnapshotRecord | None:
        """Have a service save a connection, as a checkpoint if `light`; None when it saves nothing or cannot.

        When it cannot, `binding.save_error` holds the reason.
        """
        live = binding.live
        if binding.service.pause != "snapshot" or live is None:
            return None
        if not live.usable:
            if live.phase == "lost":
                # The owner task has not noticed the loss yet.
                binding.save_error = live.reason or "the connection ended"
            return None
        saved = await self._save_connection(session, binding, live, light)
        if saved is None:
            return None
        taken_at, data = saved
        now, metrics = self._core.clock.now(), self._core.metrics
        metrics.snapshots.record(now - taken_at, binding.service.name, "")
        metrics.snapshot_bytes.add(binding.service.name, amount=len(data))
        binding.checkpointed_at = now
        binding.snapshot_seq = max(binding.snapshot_seq + 1, int(now * 1000))
        return SnapshotRecord(
            session_id=session.id,
            service=binding.service.name,
            seq=binding.snapshot_seq,
            taken_at=taken_at,
            epoch=session.record.epoch,
            data=data,
        )

    async def _save_connection(
        self, session: LiveSession, binding: Binding, live: LiveConnection, light: bool
    ) -> tuple[float, bytes] | None:
        name, error, began_at = binding.service.name, None, self._core.clock.now()
        try:
            async with AsyncExitStack() as stack:
                # A call may take longer than any bound, and a checkpoint must still save the effects of the calls before it.
                with anyio.fail_after(None if light else SNAPSHOT_BOUND):
                    # In turn with the owners of calls, and not behind all that wait.
                    await stack.enter_async_context(live.slots.place(""))
                    await stack.enter_async_context(binding.saving)
                if light:
                    # Cleared first: a call that ends during the checkpoint needs another one.
                    binding.checkpoint_at = None
                    if not live.usable or not _has_unsaved(binding, live):
                        return None
                # Taken before saving: the snapshot may miss the effects of calls that end later.
                taken_at = self._core.clock.now()
                with anyio.fail_after(SNAPSHOT_BOUND):
                    connection = live.connection
                    snapshot = await (connection.checkpoint() if light else connection.snapshot())
            binding.save_error = None
            unreported = "" if binding.notice is None else binding.unreported_losses
            return None if snapshot is None else (taken_at, encode_snapshot(snapshot, unreported))
        except (SessionError, TimeoutError) as failure:
            error = str(failure) or f"it took longer than {SNAPSHOT_BOUND:g} s"
            # The snapshot of a session that ends is not needed.
            level = logging.DEBUG if session.ends else logging.WARNING
            logger.log(level, "session %s: %s not saved: %s", session.id, name, error)
        except Exception:
            error = "an internal fault"
            logger.exception("session %s: %s not saved", session.id, name)
        binding.save_error = error
        if not session.ends:
            seconds = self._core.clock.now() - began_at
            self._core.metrics.snapshots.record(seconds, name, "failed")
        return None

    async def save(self, session: LiveSession, binding: Binding) -> SnapshotRecord | None:
        """Take a snapshot and make it durable: take() and keep() in one."""
        record = await self.take(session, binding)
        if record is not None:
            await self.keep(session, record)
        return record

    async def save_all(
        self, session: LiveSession, bindings: Iterable[Binding], seconds: float
    ) -> None:
        """Save the connections of bindings at once, each at most for some seconds: one may hang."""

        async def save(binding: Binding) -> None:
            with anyio.move_on_after(seconds):
                await self.save(session, binding)

        async with anyio.create_task_group() as tasks:
            for binding in bindings:
                if binding.live is not None:
                    tasks.start_soon(save, binding)

    def record_call(self, session: LiveSession, binding: Binding, live: LiveConnection) -> None:
        """Record that a call over a connection ended, with any outcome, and schedule a checkpoint of its effects."""
        live.called_at = self._core.clock.now()
        if _has_unsaved(binding, live):
            binding.unsaved_at = live.called_at
            if binding.service.pause == "snapshot":
                self.schedule(session, binding)

    def record_own_change(
        self, session: LiveSession, binding: Binding, live: LiveConnection
    ) -> None:
        """Schedule a checkpoint of a connection that changed by itself: soon if its last call may be the cause."""
        is_late = self._core.clock.now() - live.called_at > AFTERMATH_SECONDS
        soon = min(ECHO_SECONDS, binding.service.checkpoint_seconds or 0.0)
        self.schedule(session, binding, rest=LATER_SECONDS if is_late else soon)

    def schedule(self, session: LiveSession, binding: Binding, *, rest: float = 0.0) -> None:
        """Schedule a checkpoint if something is unsaved, at most one every `checkpoint_seconds`. Return at once.

        `rest` is the shortest delay in seconds.
        """
        live, seconds = _savable_connection(binding), binding.service.checkpoint_seconds
        if live is None or seconds is None or not _has_unsaved(binding, live):
            return
        now = self._core.clock.now()
        self._checkpoint_at(session, binding, max(binding.checkpointed_at + seconds, now + rest))

    def _checkpoint_at(self, session: LiveSession, binding: Binding, due_at: float) -> None:
        if binding.checkpoint_at is None or due_at < binding.checkpoint_at:
            binding.checkpoint_at = due_at
            # The trace of the call has ended by then.
            spawn = self._core.tasks.spawn
            contextvars.Context().run(spawn, self._checkpoint, session, binding, due_at)

    async def _checkpoint(self, session: LiveSession, binding: Binding, due_at: float) -> None:
        with suppress(RaceLost):
            # Otherwise a closed session would stay in memory until `due_at`.
            await race(session.ownership_ended.wait, partial(self._core.clock.sleep_until, due_at))
        if binding.checkpoint_at != due_at:
            # An earlier checkpoint replaced this one.
            return
        if _savable_connection(binding) is None:
            binding.checkpoint_at = None
            return
        record = await self.take(session, binding, light=True)
        if record is not None:
            await self.keep(session, record)
        if binding.save_error is None:
            binding.save_failures = 0
        elif _savable_connection(binding) is not None:
            binding.save_failures += 1
            self._try_again(session, binding)

    def _try_again(self, session: LiveSession, binding: Binding) -> None:
        """Schedule a failed checkpoint again. The delay starts at one interval and doubles with each failure, to a bound."""
        seconds = binding.service.checkpoint_seconds or 0.0
        binding.checkpointed_at = now = self._core.clock.now()
        later = seconds * 2.0 ** min(binding.save_failures - 1, 32)
        self._checkpoint_at(session, binding, now + min(later, max(seconds, RETRY_SECONDS)))

    async def keep(self, session: LiveSession, record: SnapshotRecord) -> bool:
        """Make a snapshot durable and return whether it is; a failure is logged."""
        if session.ownership_ended.is_set():
            return False
        binding = session.bindings.get(record.service)
        # Also write the record that failed with the last snapshot: a caller may know it already, such as its generation.
        late = [] if binding is None or binding.unstored_snapshot is None else [binding.record]
        if await save_quietly(session, late, [record]):
            if binding is not None:
                binding.unstored_snapshot = None
            return True
        self.record_unstored(session, [record])
        return False

    def record_unstored(self, session: LiveSession, records: Sequence[SnapshotRecord]) -> None:
        """Keep refused snapshots for the next connection, until the store takes a newer one."""
        for record in records:
            if (binding := session.bindings.get(record.service)) is not None:
                binding.unstored_snapshot, binding.save_error = record, UNSTORED


async def save_quietly(
    session: LiveSession,
    bindings: Sequence[BindingRecord],
    snapshots: Sequence[SnapshotRecord] = (),
    **columns: Any,
) -> bool:
    """Make records durable and return whether they are; a failure is logged."""
    if session.released:
        # The task that gave it up wrote everything, or is about to.
        return False
    try:
        await session.save(
            bindings=bindings,
            snapshots=snapshots,
            status=_durable_status(session.status),
            **columns,
        )
    except (SessionError, StoreUnavailable) as error:
        logger.warning("session %s not recorded: %s", session.id, error)
        return False
    return True


def _savable_connection(binding: Binding) -> LiveConnection | None:
    """Return the connection of a binding if it can be saved now."""
    live = binding.live
    if binding.service.pause != "snapshot" or live is None or not live.usable:
        return None
    return live


def _has_unsaved(binding: Binding, live: LiveConnection) -> bool:
    return live.connection.unsaved or binding.save_error is not None


def _durable_status(status: Status) -> Status:
    """Return the status as the store holds it: only the owner knows `active`."""
    return Status.IDLE if status is Status.ACTIVE else status


def _may_have_changed(binding: Binding, entry: JournalRecord) -> bool:
    if (
        entry.service != binding.service.name
        or entry.generation < max(binding.record.told_generation, 1)
        or entry.status not in SENT
        or entry.tool is None
    ):
        return False
    spec = binding.service.specs.get(entry.tool)
    return spec is None or not spec.reads


def encode_snapshot(snapshot: Snapshot, unreported: str = "") -> bytes:
    """Encode a snapshot for the store, with earlier losses not yet reported to a caller."""
    blobs = {name: base64.b64encode(blob).decode() for name, blob in snapshot.blobs.items()}
    extra = {"untold": unreported} if unreported else {}
    return orjson.dumps({"data": snapshot.data, "blobs": blobs, **extra})


def decode_snapshot(data: bytes) -> Snapshot:
    return _parts(data)[0]


def _parts(data: bytes) -> tuple[Snapshot, str]:
    document = orjson.loads(data)
    blobs = {
        name: base64.b64decode(text, validate=True) for name, text in document["blobs"].items()
    }
    return Snapshot(document["data"], blobs), document.get("untold", "")
