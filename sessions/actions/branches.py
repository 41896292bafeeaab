"""Branches of a session: forking children that start from a copy of it, and merging their changes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
from pydantic_core import from_json, to_json

from ..core import Core
from ..errors import InvalidArgument, SessionBusy, StateConflict, StateInvalid
from ..lifecycle import Status
from ..live.binding import Binding
from ..live.directory import Directory
from ..live.session import LiveSession
from ..live.snapshots import Snapshots
from ..policy import Policy
from ..records import Principal, StateRecord
from ..state.merge import Branch, ConflictPolicy, Conflicts, merge_branches, same_json
from ..state.patch import size_of, validate_state
from ..transitions.access import Access
from ..transitions.close import Closing
from ..transitions.create import Creation, CreationOptions, ForkSource
from ..validation import validate_name
from .state import RunChange, States

logger = logging.getLogger("statehold.sessions")

BASE: Final = ":fork"
"""Key of the state that a child was forked with, among its snapshots. No service has such a name."""
COUNT_LIMIT: Final = 100
"""Most children of one fork, and most sources of one merge."""
SOURCES_LIMIT: Final = 32 << 20
"""Most bytes of the states of one merge's sources, with the states that they were forked with."""
SAME_LOGINS: Final = (
    "A login in it is one login for all: a site that renews logins with each use, and takes an old one for stolen, logs out "
    "the session and its children."
)
"""The note about a copy. A copied login is no second login."""
MAX_NAMED_CONFLICTS: Final = 5
"""Most places that an error names."""


@dataclass(frozen=True, slots=True)
class ServiceCopy:
    """The copy of one service in a fork. `note` says why nothing was copied, or how the copy differs."""

    service: str
    copied: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ForkOutcome:
    """The parent, the new children, and the copies of the parent's services."""

    parent: LiveSession
    children: list[LiveSession]
    services: list[ServiceCopy]


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The state after a merge, and the places where its sources disagreed."""

    state: StateRecord
    conflicts: Conflicts


class Branches:
    """Forks and merges the sessions of one registry; it lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        access: Access,
        snapshots: Snapshots,
        creation: Creation,
        closing: Closing,
        states: States,
    ) -> None:
        self._core = core
        self._directory = directory
        self._access = access
        self._snapshots = snapshots
        self._creation = creation
        self._closing = closing
        self._states = states

    async def fork(
        self,
        principal: Principal,
        ref: str,
        *,
        count: int = 1,
        names: Sequence[str] | None = None,
    ) -> ForkOutcome:
        """Create children of a session with its state, its settings, and its services as saved now or last saved.

        Each service is saved once for all children. The parent stays unchanged. All children are created, or none.

        Raises:
            InvalidArgument, NameTaken, SessionLimit: no child was created.
            HumanInControl: a person drives the parent.
            SessionBusy: the parent is still being created, or open in another process.
        """
        await self._access.leave_when_draining(principal, ref)
        if not 1 <= count <= COUNT_LIMIT:
            raise InvalidArgument(f"count: should be 1 to {COUNT_LIMIT}.")
        if names is not None and len(names) != count:
            raise InvalidArgument(f"names: should be {count}, one for each child.")
        _check_names(names or ())
        parent = await self._directory.find(principal, ref)
        if parent.status is Status.CREATING:
            raise SessionBusy("The session is still being created.", session_id=parent.id)
        parent.require_agent()
        try:
            state = parent.durable_state
            services, snapshots = await self.save_services(parent)
            source = ForkSource(parent.id, {**snapshots, BASE: to_json(state.value)})
            children = await self._create_children(
                principal, parent, state, source, names or [None] * count
            )
        finally:
            if parent.status is Status.PAUSED:
                parent.idle_since = self._core.clock.now()
                await self._access.give_back(parent)
        return ForkOutcome(parent, children, services)

    async def _create_children(
        self,
        principal: Principal,
        parent: LiveSession,
        state: StateRecord,
        source: ForkSource,
        names: Sequence[str | None],
    ) -> list[LiveSession]:
        children: list[LiveSession] = []
        try:
            for name in names:
                options = _options_of(parent, state, name, self._core.policy)
                children.append(await self._creation.create(principal, options, source))
        except BaseException:
            with anyio.CancelScope(shield=True):
                for child in children:
                    await self._closing.abandon(child)
            raise
        return children

    async def save_services(
        self, parent: LiveSession
    ) -> tuple[list[ServiceCopy], dict[str, bytes]]:
        """Save each service once, durably; use the last snapshot of a service without a live connection."""
        copies: dict[str, ServiceCopy] = {}
        snapshots: dict[str, bytes] = {}

        async def save(binding: Binding) -> None:
            name = binding.service.name
            data, note = await self._data(parent, binding)
            if data is not None:
                snapshots[name] = data
            copies[name] = ServiceCopy(name, data is not None, note)

        async with anyio.create_task_group() as tasks:
            for binding in parent.bindings.values():
                tasks.start_soon(save, binding)
        return [copies[name] for name in parent.bindings], snapshots

    async def _data(self, parent: LiveSession, binding: Binding) -> tuple[bytes | None, str | None]:
        """Return the snapshot of a connection for the children, and a note about it."""
        if binding.service.pause != "snapshot":
            return None, "It saves nothing: the children get fresh connections."
        # The connection counts as saved from now on, so the parent must keep the snapshot too.
        record = await self._snapshots.save(parent, binding)
        if record is not None:
            return record.data, SAME_LOGINS
        if binding.record.generation or parent.record.parent:
            record = await self._core.store.snapshot(parent.id, binding.service.name)
        if record is None:
            return None, _no_snapshot_note(binding)
        behind = await self._snapshots.is_outdated(parent, binding, record)
        outdated = _outdated_note(binding, behind=behind)
        return record.data, f"{outdated} {SAME_LOGINS}" if outdated else SAME_LOGINS

    async def merge(
        self,
        principal: Principal,
        ref: str,
        sources: Sequence[str],
        *,
        policy: ConflictPolicy = "last_wins",
        namespace: str | None = None,
        run: str | None = None,
    ) -> MergeOutcome:
        """Merge into a session's state the changes of its children since they were forked; see state.merge.merge_branches().

        The children stay unchanged. If the merge changes nothing, nothing is written.

        Raises:
            InvalidArgument: a source is not a child of the session.
            StateConflict: two sources disagree and the policy is `fail`; nothing was changed.
            StateInvalid: the result is too large or does not fit the schema, or the sources are too large.
        """
        if not 1 <= len(sources) <= COUNT_LIMIT:
            raise InvalidArgument(f"sources: should be 1 to {COUNT_LIMIT} sessions.")
        parent, _ = await self._states.version(principal, ref, namespace)
        branches: list[Branch] = []
        remaining = SOURCES_LIMIT
        for source in sources:
            branch, size = await self._branch(principal, parent, source, namespace, remaining)
            branches.append(branch)
            remaining -= size
        if len({branch.name for branch in branches}) < len(branches):
            raise InvalidArgument("sources: should be different sessions.")
        conflicts = Conflicts()
        change = partial(
            _merge_into,
            branches=branches,
            policy=policy,
            conflicts=conflicts,
            limit=self._core.policy.state_bytes,
        )
        arguments = {"sources": [branch.name for branch in branches], "policy": policy}
        in_run = None if run is None else RunChange(run, "session_merge", arguments)
        state = await self._states.change(principal, parent, change, in_thread=True, in_run=in_run)
        return MergeOutcome(state, conflicts)

    async def _branch(
        self, principal: Principal, parent: str, ref: str, namespace: str | None, remaining: int
    ) -> tuple[Branch, int]:
        """Return a source of a merge and its size in bytes, which is at most `remaining`."""
        state = await self._directory.state(principal, ref, namespace, open_only=True)
        info = await self._directory.info(principal, state.session_id)
        base = await self._core.store.snapshot(state.session_id, BASE)
        if info["parent"] != parent or base is None:
            raise InvalidArgument(f"sources: {ref:.100} was not forked from this session.")
        size = len(base.data) + size_of(state.value)
        if size > remaining:
            raise StateInvalid(
                f"The sources take more than {SOURCES_LIMIT >> 20} MiB together; nothing was changed.",
                session_id=parent,
                recovery="Merge fewer sources at a time, one call after the other.",
            )
        return Branch(state.session_id, from_json(base.data), state.value), size


def _check_names(names: Sequence[str]) -> None:
    names_so_far: set[str] = set()
    for name in names:
        normalized = validate_name(name, "names")
        if normalized in names_so_far:
            raise InvalidArgument(f"names: {normalized!r} is there twice.")
        names_so_far.add(normalized)


def _options_of(
    parent: LiveSession, state: StateRecord, name: str | None, policy: Policy
) -> CreationOptions:
    record = parent.record
    timeouts = policy.renamed(record.timeouts, before=record.name, after=name)
    return CreationOptions(
        name=name,
        services=list(parent.bindings),
        state=state.value,
        state_schema=state.json_schema,
        metadata=record.metadata,
        labels=record.labels,
        namespace=record.namespace,
        idle=timeouts.idle,
        paused=timeouts.paused,
        lifetime=timeouts.lifetime,
    )


def _no_snapshot_note(binding: Binding) -> str:
    if not binding.record.generation:
        return "It was not opened yet: there is nothing to copy."
    return "It could not be saved: the children get fresh connections."


def _outdated_note(binding: Binding, *, behind: bool) -> str | None:
    """Return a note if a snapshot lacks later changes, else None."""
    cause = binding.save_error or (binding.record.last_error if behind else None)
    if cause is None:
        return None
    reason = cause.splitlines()[0].rstrip(".")
    return f"The children get what was saved before, and not what was done since: {reason}."


def _merge_into(
    state: StateRecord,
    *,
    branches: Sequence[Branch],
    policy: ConflictPolicy,
    conflicts: Conflicts,
    limit: int,
) -> StateRecord:
    value, new_conflicts = merge_branches(state.value, branches, policy)
    conflicts[:], conflicts.total = new_conflicts, new_conflicts.total
    if new_conflicts and policy == "fail":
        paths = ", ".join(
            conflict.path or "the whole" for conflict in new_conflicts[:MAX_NAMED_CONFLICTS]
        )
        more = (
            f" and {new_conflicts.total - MAX_NAMED_CONFLICTS} more"
            if new_conflicts.total > MAX_NAMED_CONFLICTS
            else ""
        )
        raise StateConflict(
            f"The sources disagree at {paths:.500}{more}; nothing was changed.",
            session_id=state.session_id,
            recovery="Choose a policy, last_wins or first_wins, or change one of the sources first.",
        )
    if same_json(value, state.value):
        return state
    validate_state(value, state.session_id, limit)
    return state.model_copy(update={"version": state.version + 1, "value": value})
