"""The toolset `branch`: children of a session, and merging their changes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, Field

from ...sessions.actions.branches import MOST
from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from ...sessions.state.merge import ConflictPolicy
from .definition import Context, Outcome, OwnTool
from .sessions import Name, One, SessionId, summary

SHOWN = 1000
"""Conflicts that a result lists."""


class Fork(One):
    count: Annotated[int, Field(ge=1, le=MOST, description="How many children.")] = 1
    names: Annotated[
        list[Name] | None, Field(description="A name for each child; left out: none.")
    ] = None


class Merge(One):
    sources: Annotated[
        list[SessionId],
        Field(
            min_length=1, max_length=MOST, description="Children of it, in the order that counts."
        ),
    ]
    policy: Annotated[
        ConflictPolicy,
        Field(
            description="The value kept where sources disagree: the last one, the first one (the session itself "
            "comes before all), or nothing: fail."
        ),
    ] = "last_wins"


class Child(BaseModel):
    session_id: str
    name: str | None


class CopiedService(BaseModel):
    service: str
    copied: bool
    note: str | None


class ForkResult(BaseModel):
    children: list[Child]
    services: list[CopiedService]


class ConflictInfo(BaseModel):
    path: str
    source: str
    taken: bool


class MergeResult(BaseModel):
    version: int
    conflicts: list[ConflictInfo]
    conflict_count: int


class BranchTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools when their toolset is among the chosen ones."""
        return [self._forking(), self._merging()] if "branch" in set(toolsets) else []

    def _forking(self) -> OwnTool:
        return OwnTool(
            "session_fork",
            "Fork a session",
            "Make children of a session, which start from a copy of its state and of what its services can save: log in "
            "once, fork five browsers. The session goes on as it was, and nothing that the children do reaches it before "
            "session_merge. The result says which services could not be copied.",
            Fork,
            ForkResult,
            self._fork,
            toolset="branch",
            pinned=False,
        )

    def _merging(self) -> OwnTool:
        return OwnTool(
            "session_merge",
            "Merge the states of a session's children",
            "Bring into a session's state what its children changed in theirs since they were forked: place by place, "
            "deletions too. The result lists the places where they disagreed. The children stay as they are.",
            Merge,
            MergeResult,
            self._merge,
            destructive=True,
            idempotent=True,
            toolset="branch",
            pinned=False,
        )

    async def _fork(self, context: Context, args: Fork) -> Outcome:
        forked = await self._registry.branches.fork(
            context.principal, args.session_id, count=args.count, names=args.names
        )
        children: list[JSON] = [
            {"session_id": child.id, "name": child.record.name} for child in forked.children
        ]
        services: list[JSON] = [
            {"service": found.service, "copied": found.copied, "note": found.note}
            for found in forked.services
        ]
        content: JSON = {"children": children, "services": services}
        return Outcome(content, forked.parent.summary())

    async def _merge(self, context: Context, args: Merge) -> Outcome:
        found = await self._registry.branches.merge(
            context.principal,
            args.session_id,
            args.sources,
            policy=args.policy,
            namespace=context.namespace,
        )
        conflicts: list[JSON] = [
            {"path": conflict.path, "source": conflict.source, "taken": conflict.taken}
            for conflict in found.conflicts[:SHOWN]
        ]
        info = await self._registry.info(context.principal, found.state.session_id)
        content: JSON = {
            "version": found.state.version,
            "conflicts": conflicts,
            "conflict_count": found.conflicts.total,
        }
        return Outcome(content, summary(info))


__all__ = ["BranchTools"]
