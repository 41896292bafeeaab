"""The sessions of this node: create, find, list, change and close them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio

from .actions.branches import Branches
from .actions.history import Histories
from .actions.porting import Porting
from .actions.rename_delete import RenameDelete
from .actions.runs import Runs
from .actions.sharing import Sharing
from .actions.state import States
from .actions.summaries import Summaries, Summarize
from .calls.receipts import RunningOperations
from .core import Core
from .errors import SessionError, ShuttingDown, StoreUnavailable
from .lifecycle import Status
from .live.connector import Connector
from .live.directory import STORED, Directory
from .live.due_summaries import DueSummaries
from .live.quota import Quota
from .live.session import Binding, LiveSession
from .live.snapshots import Snapshots
from .policy import SummaryTriggers
from .principals.policy_watch import PolicyWatch
from .records import Principal, SessionFilter
from .resumption import Orphans
from .transitions.access import Access
from .transitions.admission import Admission, busy, calls_of
from .transitions.close import Closing
from .transitions.control import Controls
from .transitions.create import Creation, CreationOptions
from .transitions.eviction import Eviction, Rebalancing
from .transitions.expiry import Expiry
from .transitions.pause import PauseCause, Pausing, end_questions
from .transitions.recovery import Recovery
from .transitions.revocation import Revocations
from .transitions.suspension import Suspension

logger = logging.getLogger("statehold.sessions")

MAX_LAST_CLAIMS: Final = 4
"""Most times that the sessions are given up which were claimed when the node began to drain."""


class Registry:
    """The sessions this node owns, and access to those it does not own yet.

    It lives as long as the process: `async with Registry(core)` adopts the sessions of dead nodes, starts the deadlines
    and, at the end, drains: calls in flight get `close_grace`, then every session is paused and its connections are closed.
    Every method may be called from any task. Methods with a `principal` check it: a foreign session does not exist. `ref`
    is an id or a name of the caller's. `summarize` is the model that writes summaries.
    """

    def __init__(self, core: Core, *, summarize: Summarize | None = None) -> None:
        self.core = core
        self.spawn: Callable[..., None] = core.tasks.spawn
        """Starts work that lives at most as long as the registry. A failure is logged and stops nothing else."""
        self.quota = Quota(core)
        self.directory = Directory(core, self._drop_fenced, self.quota)
        self.snapshots = Snapshots(core)
        self.connector = Connector(core, self.snapshots, self._recover)
        self.admission = Admission(core)
        self.running_operations = RunningOperations()
        """The calls with an operation id that run now. The router adds them, and `orphans` those of the process before."""
        self.orphans = Orphans(core, self.connector, self.admission, self.running_operations)
        due_summaries = DueSummaries(core.policy.summaries if summarize else SummaryTriggers())
        self.pausing = Pausing(
            core, self.directory, self.connector, self.snapshots, self.orphans, due_summaries
        )
        self.closing = Closing(
            core, self.directory, self.connector, self.orphans, self.pausing, due_summaries
        )
        self._recovery = Recovery(core, self.connector, self.pausing, self.closing)
        self.access = Access(core, self.directory, self.pausing)
        self.controls = Controls(core, self.directory, self.access)
        """The leases of people who drive sessions."""
        self._creation = Creation(core, self.directory, self.connector, self.closing, self.quota)
        self.states = States(core, self.directory, self.access, self.quota)
        self.history = Histories(core, self.directory, self.access, self.quota, due_summaries)
        self.runs = Runs(core, self.directory, self.access, self.quota)
        self.branches = Branches(
            core,
            self.directory,
            self.access,
            self.snapshots,
            self._creation,
            self.closing,
            self.states,
        )
        self.rename_delete = RenameDelete(
            core, self.directory, self.access, self.closing, self.quota
        )
        self.sharing = Sharing(core, self.directory)
        self.summaries = Summaries(
            core, self.directory, self.history, self.rename_delete, due_summaries, summarize
        )
        self.porting = Porting(core, self.directory, self.branches, self.quota)
        core.budget.attach(Eviction(core, self.directory, self.pausing))
        self._rebalancing = Rebalancing(core, self.directory, self.pausing)
        self._suspension = Suspension(
            core, self.directory, self.connector, self.pausing, self.closing, self._record_beat
        )
        self._expiry = Expiry(core, self.directory, self.pausing, self.closing, self.controls)
        self.revocations = Revocations(
            core, self.directory, self.pausing, self.closing, self.controls
        )
        self.policies = PolicyWatch(core, self.revocations.look)
        self._inherited: Sequence[str] = ()

    async def __aenter__(self) -> Self:
        heartbeat = self.core.node.heartbeat
        self._inherited = await self.core.node.recover(inherits=heartbeat is not None)
        await self.core.tasks.__aenter__()
        if heartbeat is not None:
            heartbeat.attach(self._suspension)
        self.core.tasks.start(self.core.deadlines.run, self._expiry.on_due)
        self.core.tasks.start(self.summaries.run)
        await self.policies.refresh()
        if self.core.policy.shared:
            await self.revocations.refresh()
            self.core.tasks.start(self.policies.run, self._in_flight)
        self.core.deadlines.schedule(STORED, self.core.clock.now())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            with anyio.CancelScope(shield=True):
                await self.drain()
        finally:
            is_handled = await self.core.tasks.__aexit__(kind, error, traceback)
        return is_handled

    def _in_flight(self) -> int | None:
        return sum(session.in_flight for session in self.directory) if self.directory else None

    def _record_beat(self) -> None:
        if self.core.node.is_draining and not self.draining:
            logger.info("this node drains: other nodes take on its sessions")
            self.spawn(self.give_up)
        self._rebalancing.rebalance()

    async def resume_orphans(self, session_ids: Sequence[str], *, since: float) -> None:
        """Claim sessions of dead processes and resume their connections; those that cannot be claimed stay as they are.

        So do sessions that were paused before `since`, in seconds since 1970: not by the death of their process.
        """
        async with anyio.create_task_group() as tasks:
            for session_id in session_ids:
                tasks.start_soon(self._resume_orphan, session_id, since)

    async def _resume_orphan(self, session_id: str, since: float) -> None:
        try:
            record = await self.core.store.get(session_id)
            if record is None or record.status is Status.CLOSED:
                return
            if record.status is Status.PAUSED and record.status_at < since:
                return
            await self.directory.claim(record)
            session = self.directory.get(session_id)
            if session is not None:
                await self.pausing.resume(session, cause="its connection outlived its process")
        except (SessionError, StoreUnavailable) as error:
            logger.info("the connections of session %s wait for a call: %s", session_id, error)

    async def release_orphans(self) -> None:
        """Let other nodes claim the sessions that this one inherited at its start and did not resume."""
        for session_id in self._inherited:
            with suppress(SessionError, StoreUnavailable):
                await self._suspension.release(session_id)

    async def give_up(self, *, leaves_tasks: bool = False) -> None:
        """Take on nothing any more, let running calls finish within `close_grace`, and pause every session.

        With `leaves_tasks`, sessions with calls that were handed over are left to the next process instead.

        With a lease, other nodes answer calls of these sessions afterwards, and this one forwards them.
        """
        self.directory.draining = True
        await self.core.node.drain()
        for _ in range(MAX_LAST_CLAIMS):
            await self.closing.drain(self.directory, leaves_tasks=leaves_tasks)
            # A claim that began before may have come after; none begins now.
            await self.directory.wait_claimed()
            if not len(self.directory):
                break

    async def drain(self) -> None:
        """Give up every session because the process ends (SIGTERM)."""
        await self.give_up(leaves_tasks=True)
        await self.connector.close_shared()
        try:
            await self.core.store.flush()
        except StoreUnavailable as error:
            logger.error("the end of the journal was not written: %s", error)

    async def abandon(self) -> None:
        """Refuse new work, and close every connection without saving: other nodes have declared this one dead."""
        self.directory.draining = True
        await self._suspension.abandon()

    @property
    def is_open(self) -> bool:
        """Whether sessions can be created and claimed: from the begin of the `async with` to its end."""
        return self.core.tasks.is_open

    @property
    def draining(self) -> bool:
        """Whether new work is refused because the process ends."""
        return self.directory.draining

    @property
    def on_purged(self) -> list[Callable[[str], None]]:
        """Called with the id of a session when nothing of it is left."""
        return self.directory.on_purged

    def statistics(self) -> dict[str, int]:
        """Counts for health and tests."""
        budget = self.core.budget.statistics()
        return {
            "owned": len(self.directory),
            "live": budget.used,
            "idle": budget.idle,
            "waiting": budget.waiting,
            "in_flight": sum(s.in_flight for s in self.directory),
            "deadlines": len(self.core.deadlines),
        }

    async def create(
        self, principal: Principal, options: CreationOptions | None = None
    ) -> LiveSession:
        """Create a session and open its eager services (T01 to T03). Durable on return.

        Raises:
            InvalidArgument, NameTaken, SessionLimit: nothing was created.
            ServiceUnavailable: an eager service did not open; the session is closed and no child is left.
        """
        if self.draining and not self.core.node.can_give_up:
            raise ShuttingDown
        self.core.node.require_lease()
        self.core.node.require_place(None)
        return await self._creation.create(principal, options or CreationOptions())

    async def find(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> LiveSession:
        """Return a session that this node owns, in any open status; see Directory.find."""
        return await self.directory.find(principal, ref, namespace)

    def find_here(self, principal: Principal, session_id: str) -> LiveSession | None:
        """Return a session that this node owns, in any status; None when it owns none of that id."""
        return self.directory.find_here(principal, session_id)

    def live(self, principal: Principal, session_id: str) -> LiveSession | None:
        """Return a session that takes a call at once, without waiting; None when it does not."""
        return self.directory.ready(principal, session_id)

    def owns(self, session_id: str, epoch: int = 0) -> bool:
        """Whether this node owns a session and takes work for it. `epoch`: only if it owns it in that epoch."""
        session = self.directory.get(session_id)
        return not self.draining and session is not None and epoch in (0, session.record.epoch)

    def forget_owner(self, session_id: str) -> None:
        """Look for the owner of another node's session again; see Directory.forget_owner."""
        self.directory.forget_owner(session_id)

    def owned_sessions(self) -> list[LiveSession]:
        """Return every session this node owns, of all principals; for operators."""
        return list(self.directory)

    async def info(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return everything a caller may know of one of its sessions, open or closed."""
        return await self.directory.info(principal, ref, namespace)

    async def info_of_owner(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return the same as info(), from the node that owns the session; see Directory.info_of_owner."""
        return await self.directory.info_of_owner(principal, ref, namespace)

    async def page(
        self, principal: Principal, session_filter: SessionFilter
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the caller's sessions, most recently used first, and the cursor of the next page."""
        return await self.directory.page(principal, session_filter)

    async def ready(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> LiveSession:
        """Return a session that takes calls: idle, active, or in error. A paused one is resumed.

        Raises:
            SessionPaused: it is paused and resuming is not automatic.
            SessionBusy: it is being created, or another process holds it.
        """
        return await self.access.ready(principal, ref, namespace)

    async def pause(
        self, principal: Principal, ref: str, *, cause: str = "requested"
    ) -> LiveSession:
        """Pause a session (T08); pausing a paused one does nothing.

        Raises:
            SessionBusy: calls are in flight, or a connection has something under way that would be lost.
        """
        session = await self.directory.find(principal, ref)
        if not await self.pausing.pause(session, PauseCause(cause)):
            raise busy(session)
        return session

    async def resume(self, principal: Principal, ref: str) -> LiveSession:
        """Resume a session (T09) and reopen its connections; the notice of each binding says what was restored.

        Raises:
            ServiceUnavailable: none of its connections could be opened. Otherwise its bindings have the errors.
        """
        session = await self.directory.find(principal, ref)
        if session.status is Status.PAUSED:
            await self.pausing.resume(session, cause="requested")
        session = await self.ready(principal, session.id)
        missing = [b for b in session.bindings.values() if b.record.generation and b.live is None]
        self.admission.count_in(session)
        await self._connect_all(session, missing)
        return session

    async def _connect_all(self, session: LiveSession, bindings: Collection[Binding]) -> None:
        """Open connections of a session that was counted in, so that it is not paused meanwhile, and count it out."""
        try:
            await self.connector.connect_all(session, bindings)
        finally:
            self.admission.release(session)

    async def close(
        self, principal: Principal, ref: str, *, force: bool = False, reason: str = "requested"
    ) -> tuple[dict[str, Any], bool]:
        """Close a session (T12, T13). Return its description and whether it was closed already."""
        return await self.closing.close_by_ref(principal, ref, force=force, reason=reason)

    async def extend(self, principal: Principal, ref: str, seconds: float) -> LiveSession:
        """Move the end of a session's lifetime by `seconds`, at most to the longest lifetime from now.

        A session without an end stays without. Negative seconds shorten it, down to now.
        """
        async with self.access.hold(principal, ref) as session:
            end = session.record.lifetime_ends_at
            if end is not None:
                now, longest = self.core.clock.now(), self._longest_lifetime(session.record.owner)
                end = max(now, min(end + seconds, now + longest) if longest else end + seconds)
                await session.save(lifetime_ends_at=end)
                self.directory.schedule(session)
        return session

    def _longest_lifetime(self, owner: str) -> float:
        bounds = self.core.policy.longest.lifetime, self.core.limits.of(owner).lifetime
        return min((bound for bound in bounds if bound), default=0.0)

    async def restart(
        self, principal: Principal, ref: str, services: Sequence[str] | None = None
    ) -> LiveSession:
        """Replace the live connections of a session by fresh ones (T15 when it was in error).

        Calls that wait for these connections use the fresh ones; calls of other services go on.

        Raises:
            SessionBusy: calls run over them. Those that wait for an answer of their caller are ended.
            ServiceUnavailable: none of them could be opened. Otherwise their bindings have the errors.
        """
        async with self.access.hold(principal, ref, drives=True) as session:
            await end_questions(session)
            if session.status is Status.PAUSED:
                await self.pausing.resume_held(session, cause="restart")
            bindings = [
                self._creation.require_binding(session, name)
                for name in services or session.bindings
            ]
            restarted = [b for b in bindings if services or b.record.generation or b.live]
            names = {binding.service.name for binding in restarted}
            if calls_of(session, names, sent=True):
                raise busy(session)
            restarted = await self.connector.close_for_restart(session, restarted)
            self.admission.count_in(session)
        await self._connect_all(session, restarted)
        return session

    async def bind(self, principal: Principal, ref: str, service: str) -> LiveSession:
        """Bind a service to a session; binding it twice does nothing."""
        configured = self._creation.service(service)
        self._creation.require_allowed(principal.key, service)
        await self.ready(principal, ref)
        async with self.access.hold(principal, ref, drives=True) as session:
            if service not in session.bindings:
                binding = self._creation.bind(session, configured)
                services = [*session.record.services, service]
                try:
                    await session.save(bindings=[binding.record], services=services)
                except BaseException:
                    del session.bindings[service]
                    raise
        if configured.eager:
            await self.connector.connect(session, session.bindings[service])
        return session

    async def unbind(self, principal: Principal, ref: str, service: str) -> LiveSession:
        """Unbind a service from a session: close its connection and delete its snapshots."""
        self._creation.service(service)
        async with self.access.hold(principal, ref, drives=True) as session:
            binding = session.bindings.get(service)
            if binding is not None:
                if calls_of(session, [service]):
                    raise busy(session)
                services = [name for name in session.record.services if name != service]
                await session.save(unbind=[service], services=services)
                del session.bindings[service]
                await self.orphans.end(session, [binding])
                await self.connector.close(session, [binding])
        return session

    # A lost connection and a fenced session end in parts that are built on the connector and the directory.

    def _recover(self, session: LiveSession, binding: Binding, contenders: Collection[str]) -> None:
        self.spawn(self._recovery.recover, session, binding, contenders)

    def _drop_fenced(self, session: LiveSession) -> None:
        logger.error("session %s was taken over by another process", session.id)
        self.spawn(self.closing.drop, session)
