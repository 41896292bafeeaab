"""Opening, losing, recovering, saving and closing the connections of the sessions of this node."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial

import anyio
import orjson

from .clock import Clock
from .connections import LiveConnection
from .errors import SessionBusy, SessionClosed, SessionError, StoreUnavailable
from .lifecycle import Event, Status
from .limits import Budget
from .policy import Policy
from .records import BindingRecord, BindingStatus, SnapshotRecord
from .services import Restored, Snapshot, Telling
from .session import Binding, Session
from .store.base import Store

logger = logging.getLogger("statehold.sessions")

SNAPSHOT_BOUND = 20.0
"""Seconds a service may take to save a connection, and seconds a snapshot waits for the calls before it."""

AFTERMATH_SECONDS = 30.0
"""How long after a call a checkpoint is taken for what a page does by itself. Some pages ask for news for ever: what those
change later is saved with the next call, or the next pause."""

ECHO_SECONDS = 1.0
"""What a page does with an answer, such as keep the token it got, comes a moment after the answer."""

RETRY_SECONDS = 300.0
"""How long at most until a checkpoint that failed is tried again: nobody may be calling, and the fault may stay."""


class Links:
    """The connections of all sessions of this node. It lives as long as the registry, which owns the task group.

    A connection is opened at most once at a time per session and service, whoever asks. `start` starts a task of the
    registry, `spawn` one whose failure is only logged; `on_failed` is called with a session that could not be recovered.
    """

    def __init__(
        self,
        *,
        start: Callable[..., object],
        spawn: Callable[..., None],
        store: Store,
        clock: Clock,
        policy: Policy,
        budget: Budget,
        on_failed: Callable[[Session], None],
    ) -> None:
        self._start_task = start
        self._spawn = spawn
        self._store = store
        self._clock = clock
        self._policy = policy
        self._budget = budget
        self._on_failed = on_failed
        self._shared: dict[str, LiveConnection] = {}

    # Opening.

    async def connect(self, session: Session, binding: Binding) -> LiveConnection:
        """Return the live connection of a binding, opening it when there is none.

        Raises:
            ServiceUnavailable: it could not be opened.
            SessionLimit: no place for another live session became free in time.
        """
        if binding.service.scope == "shared":
            return await self._connect_shared(session, binding)
        live = binding.live
        if live is None or live.phase in ("failed", "closed"):
            live = await self._start(session, binding)
        elif live.phase in ("closing", "lost"):
            await live.closed.wait()
            return await self.connect(session, binding)
        try:
            await live.opened()
        except SessionError as error:
            self._open_failed(session, binding, live, error)
            raise
        self._note_opened(session, binding, live)
        return live

    async def _start(self, session: Session, binding: Binding) -> LiveConnection:
        _refuse_ended(session)
        binding.opening += 1
        try:
            await self._budget.acquire(session.id)
            snapshot = await self._saved(session, binding)
            _refuse_ended(session)
        except BaseException:
            binding.opening -= 1
            if not session.holds_connection:
                self._budget.release(session.id)
            raise
        binding.opening -= 1
        # Somebody else may have started it while this task waited for a place or the snapshot.
        if binding.live is not None and binding.live.phase not in ("failed", "closed"):
            return binding.live
        generation = binding.record.generation + 1

        def lost(live: LiveConnection) -> None:
            self._lost(session, binding, live)

        live = LiveConnection(binding.service, session.view(generation), snapshot, on_lost=lost)
        binding.live = live
        binding.save_error, binding.save_failures = None, 0
        live.start(self._start_task)
        self._spawn(self._opened, session, binding, live)
        return live

    async def _opened(self, session: Session, binding: Binding, live: LiveConnection) -> None:
        """Record what became of an opening, whoever still waits for it."""
        try:
            await live.opened()
        except SessionError as error:
            self._open_failed(session, binding, live, error)
            return
        self._note_opened(session, binding, live)
        try:
            await self._save_quietly(session, [binding.record])
        finally:
            live.recorded.set()

    def _note_opened(self, session: Session, binding: Binding, live: LiveConnection) -> None:
        before, generation = binding.record, live.view.generation
        if before.generation >= generation:
            return
        if before.generation:
            binding.notice = replaced(before, generation, live.connection.opened)
        elif live.restores:
            binding.notice = copied(before.service, live.connection.opened)
        if isinstance(live.connection, Telling):
            live.connection.on_unsaved = partial(self._stirred, session, binding, live)
        binding.changed(
            status=BindingStatus.OPEN,
            generation=generation,
            config_hash=binding.service.config_hash,
            since=self._clock.now(),
        )

    def _open_failed(
        self, session: Session, binding: Binding, live: LiveConnection, error: SessionError
    ) -> None:
        if binding.live is not live:
            return
        binding.live = None
        binding.changed(
            status=BindingStatus.FAILED, last_error=error.message, since=self._clock.now()
        )
        error.session_id = session.id
        if not session.holds_connection:
            self._budget.release(session.id)

    async def _connect_shared(self, session: Session, binding: Binding) -> LiveConnection:
        name = binding.service.name
        live = self._shared.get(name)
        if live is None or live.phase not in ("opening", "open"):
            live = LiveConnection(binding.service, session.view(1), None, on_lost=lambda _: None)
            self._shared[name] = live
            # What is for all sessions and for ever tells none that it was replaced.
            live.recorded.set()
            live.start(self._start_task)
        await live.opened()
        binding.live = live
        if binding.record.status is not BindingStatus.OPEN:
            binding.changed(status=BindingStatus.OPEN, generation=1, told_generation=1)
        return live

    async def _saved(self, session: Session, binding: Binding) -> Snapshot | None:
        if binding.service.pause != "snapshot" or not (
            binding.record.generation or session.record.parent
        ):
            return None
        record = await self._store.snapshot(session.id, binding.service.name)
        if record is None:
            return None
        binding.snapshot_seq = max(binding.snapshot_seq, record.seq)
        return unpacked(record.data)

    # Losing and recovering.

    def _lost(self, session: Session, binding: Binding, live: LiveConnection) -> None:
        if binding.live is not live or session.ends:
            return
        reason = live.reason or "the connection ended"
        logger.warning(
            "session %s lost %s generation %d: %s",
            session.id,
            binding.service.name,
            live.view.generation,
            reason,
        )
        binding.losses = 0 if live.calls else binding.losses + 1
        binding.live = None
        binding.changed(status=BindingStatus.LOST, last_error=reason, since=self._clock.now())
        if session.status in (Status.IDLE, Status.ACTIVE, Status.PAUSED) and not session.pausing:
            session.apply(Event.CONNECTION_LOST, cause=f"{binding.service.name}: {reason}"[:1000])
            self._budget.mark_busy(session.id)
            self._spawn(self._recover, session)

    async def _recover(self, session: Session) -> None:
        """Bring a session out of error by itself, within the attempts it has (T15, T16)."""
        lost_at = self._clock.now()
        await self._save_quietly(session, [b.record for b in session.bindings.values()])
        if not self._policy.recovery_backoff:
            return
        when = lost_at
        for wait in self._policy.recovery_backoff:
            await self._clock.sleep_until(when + wait)
            async with session.changing:
                if session.status is not Status.ERROR:
                    return
                if self._gave_up(session):
                    break
                if await self._reopen(session):
                    return
            when = self._clock.now()
        if session.status is Status.ERROR:
            self._on_failed(session)

    def _gave_up(self, session: Session) -> bool:
        return any(b.losses > len(self._policy.recovery_backoff) for b in session.bindings.values())

    async def _reopen(self, session: Session) -> bool:
        for binding in session.bindings.values():
            if binding.record.status in (BindingStatus.LOST, BindingStatus.FAILED):
                try:
                    await self.connect(session, binding)
                except (SessionError, StoreUnavailable) as error:
                    logger.warning("session %s not recovered yet: %s", session.id, error)
                    return False
                except Exception:
                    logger.exception("session %s not recovered yet", session.id)
                    return False
        if session.status is not Status.ERROR:
            return False
        await self.recovered(session, cause="automatic")
        return True

    async def recovered(self, session: Session, *, cause: str) -> None:
        """Take a session out of error (T15), under `session.changing`."""
        session.apply(Event.RECOVERED, cause=cause)
        if session.in_flight:
            session.apply(Event.CALL_ADMITTED)
        else:
            self._budget.mark_idle(session.id)
        await self._save_quietly(session, [b.record for b in session.bindings.values()])

    async def restart(self, session: Session, bindings: Iterable[Binding]) -> None:
        """Replace live connections by fresh ones, without what they held, under `session.changing`."""
        for binding in bindings:
            if binding.service.scope == "shared":
                # It is everybody's: one session may not take it from the others.
                continue
            live, binding.live = binding.live, None
            if live is not None:
                await live.aclose()
            if binding.record.generation:
                binding.changed(status=BindingStatus.LOST, last_error="restarted on request")
            await self.connect(session, binding)

    # Saving.

    async def snapshot(
        self, session: Session, binding: Binding, *, light: bool = False
    ) -> SnapshotRecord | None:
        """Have a service save a connection, in passing when `light`; None when it saves nothing or cannot.

        When it cannot, `binding.save_error` says why.
        """
        live = binding.live
        if binding.service.pause != "snapshot" or live is None:
            return None
        if not live.usable:
            if live.phase == "lost":
                # Its owner is about to notice.
                binding.save_error = live.reason or "the connection ended"
            return None
        data = await self._taken(session, binding, live, light)
        if data is None:
            return None
        now = self._clock.now()
        binding.checkpointed_at = now
        binding.snapshot_seq = max(binding.snapshot_seq + 1, int(now * 1000))
        return SnapshotRecord(
            session_id=session.id,
            service=binding.service.name,
            seq=binding.snapshot_seq,
            taken_at=now,
            epoch=session.record.epoch,
            data=data,
        )

    async def _taken(
        self, session: Session, binding: Binding, live: LiveConnection, light: bool
    ) -> bytes | None:
        name, error = binding.service.name, None
        try:
            async with AsyncExitStack() as held:
                # A call may take longer than any bound, and what was done before it has to be saved all the same.
                with anyio.fail_after(None if light else SNAPSHOT_BOUND):
                    await held.enter_async_context(live.slots)
                    await held.enter_async_context(binding.saving)
                if light:
                    # Before it is taken: a call that ends while it is being taken needs another one.
                    binding.checkpoint_at = None
                    if not live.usable or not _unsaved(binding, live):
                        return None
                with anyio.fail_after(SNAPSHOT_BOUND):
                    connection = live.connection
                    saved = await (connection.checkpoint() if light else connection.snapshot())
            binding.save_error = None
            return None if saved is None else packed(saved)
        except (SessionError, TimeoutError) as failed:
            error = str(failed) or f"it took longer than {SNAPSHOT_BOUND:g} s"
            # Of a session that ends, nobody misses it.
            level = logging.DEBUG if session.ends else logging.WARNING
            logger.log(level, "session %s: %s not saved: %s", session.id, name, error)
        except Exception:
            error = "an internal fault"
            logger.exception("session %s: %s not saved", session.id, name)
        binding.save_error = error
        return None

    def called(self, session: Session, binding: Binding, live: LiveConnection) -> None:
        """Note that a call over a connection ended, in whatever way, and have saved what it did."""
        live.called_at = self._clock.now()
        self.checkpoint_soon(session, binding)

    def _stirred(self, session: Session, binding: Binding, live: LiveConnection) -> None:
        """Have saved what changed in a connection by itself, when that may be what its last call led to."""
        if self._clock.now() - live.called_at <= AFTERMATH_SECONDS:
            self.checkpoint_soon(session, binding, rest=ECHO_SECONDS)

    def checkpoint_soon(self, session: Session, binding: Binding, *, rest: float = 0.0) -> None:
        """Save a connection where something is unsaved, at most every `checkpoint_seconds`, without keeping anybody waiting.

        `rest` is how long to wait at least, were it not longer than that.
        """
        live, seconds = _savable(binding), binding.service.checkpoint_seconds
        if live is None or seconds is None or not _unsaved(binding, live):
            return
        now = self._clock.now()
        self._checkpoint_at(
            session, binding, max(binding.checkpointed_at + seconds, now + min(rest, seconds))
        )

    def _checkpoint_at(self, session: Session, binding: Binding, when: float) -> None:
        if binding.checkpoint_at is None or when < binding.checkpoint_at:
            binding.checkpoint_at = when
            self._spawn(self._checkpoint, session, binding, when)

    async def _checkpoint(self, session: Session, binding: Binding, when: float) -> None:
        await self._clock.sleep_until(when)
        if binding.checkpoint_at != when:
            # An earlier one took its place.
            return
        if _savable(binding) is None:
            binding.checkpoint_at = None
            return
        record = await self.snapshot(session, binding, light=True)
        if record is not None and not await self.keep(session, record):
            binding.save_error = "it could not be stored"
        if binding.save_error is None:
            binding.save_failures = 0
        elif _savable(binding) is not None:
            binding.save_failures += 1
            self._try_again(session, binding)

    def _try_again(self, session: Session, binding: Binding) -> None:
        """Have a checkpoint that failed taken again at the next interval; the later the oftener it failed."""
        seconds = binding.service.checkpoint_seconds or 0.0
        binding.checkpointed_at = now = self._clock.now()
        later = seconds * 2.0 ** min(binding.save_failures - 1, 32)
        self._checkpoint_at(session, binding, now + min(later, max(seconds, RETRY_SECONDS)))

    async def keep(self, session: Session, record: SnapshotRecord) -> bool:
        """Make what a service saved durable and return whether it is; when it cannot be, that is logged."""
        return not session.gone.is_set() and await self._save_quietly(session, [], [record])

    def save_soon(self, session: Session, binding: Binding) -> None:
        """Make what a binding's record says durable, without keeping anybody waiting."""
        if not session.gone.is_set():
            self._spawn(self._save_quietly, session, [binding.record])

    # Closing.

    async def close(self, session: Session, bindings: Iterable[Binding]) -> None:
        """Close the connections of some bindings at once, each within its bound."""
        async with anyio.create_task_group() as tasks:
            for binding in bindings:
                live, binding.live = binding.live, None
                if live is not None and binding.service.scope == "session":
                    tasks.start_soon(live.aclose)
        if not session.holds_connection:
            self._budget.release(session.id)

    async def close_shared(self) -> None:
        for live in self._shared.values():
            live.close_nowait()
        for live in self._shared.values():
            await live.aclose()

    async def _save_quietly(
        self,
        session: Session,
        bindings: list[BindingRecord],
        snapshots: list[SnapshotRecord] | None = None,
    ) -> bool:
        try:
            await session.save(
                bindings=bindings, snapshots=snapshots or (), status=durable(session.status)
            )
        except (SessionError, StoreUnavailable) as error:
            logger.warning("session %s not recorded: %s", session.id, error)
            return False
        return True


def _savable(binding: Binding) -> LiveConnection | None:
    """Return the connection of a binding when it can be saved now."""
    live = binding.live
    if binding.service.pause != "snapshot" or live is None or not live.usable:
        return None
    return live


def _unsaved(binding: Binding, live: LiveConnection) -> bool:
    return live.connection.unsaved or binding.save_error is not None


def _refuse_ended(session: Session) -> None:
    if session.fenced:
        raise SessionBusy("Another process took the session over.", session_id=session.id)
    if session.ends or session.gone.is_set():
        raise SessionClosed("The session is being closed.", session_id=session.id)


def durable(status: Status) -> Status:
    """Return the status as the store holds it: `active` is for the owner alone."""
    return Status.IDLE if status is Status.ACTIVE else status


def replaced(before: BindingRecord, generation: int, opened: Restored) -> str:
    """Return the words a caller gets with the first result over a replaced connection."""
    why = "it was paused"
    if before.status in (BindingStatus.LOST, BindingStatus.FAILED):
        why = (before.last_error or "it was lost").splitlines()[0][:200]
    found = (
        f"Note from Statehold: the connection to {before.service} was replaced "
        f"(generation {max(before.told_generation, 1)} to {generation}; {why})."
    )
    return found + _came_back(opened)


def copied(service: str, opened: Restored) -> str:
    """Return the words a caller gets with the first result in a session that began with a copy of another's connection."""
    found = (
        f"Note from Statehold: the connection to {service} began as a copy of another session's."
    )
    return found + _came_back(opened)


def _came_back(opened: Restored) -> str:
    restored = f" Restored: {opened.restored}." if opened.restored else ""
    return f"{restored} Lost: {opened.lost or 'nothing that is known'}."


def packed(snapshot: Snapshot) -> bytes:
    blobs = {name: base64.b64encode(blob).decode() for name, blob in snapshot.blobs.items()}
    return orjson.dumps({"data": snapshot.data, "blobs": blobs})


def unpacked(data: bytes) -> Snapshot:
    found = orjson.loads(data)
    blobs = {name: base64.b64decode(text) for name, text in found["blobs"].items()}
    return Snapshot(found["data"], blobs)


__all__ = ["Links", "copied", "durable", "packed", "replaced", "unpacked"]
