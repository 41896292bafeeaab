"""The toolset `branch`: fork a session into children, and merge their states back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from ...sessions.actions.branches import COUNT_LIMIT
from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from ...sessions.state.merge import ConflictPolicy
from .own_tool import Outcome, OwnTool, ToolContext
from .results import ForkResult, MergeResult
from .session_arguments import Name, SessionArguments, SessionId
from .session_tools import summary

MAX_LISTED_CONFLICTS = 1000
"""Most conflicts that a result lists."""


class ForkArguments(SessionArguments):
    count: Annotated[int, Field(ge=1, le=COUNT_LIMIT, description="How many children")] = 1
    names: Annotated[list[Name] | None, Field(description="One for each child")] = None


class MergeArguments(SessionArguments):
    sources: Annotated[
        list[SessionId],
        Field(
            min_length=1,
            max_length=COUNT_LIMIT,
            description="Children of it, in order",
        ),
    ]
    policy: Annotated[
        ConflictPolicy,
        Field(description="Where sources disagree; the session itself comes first of all"),
    ] = "last_wins"


class BranchTools:
    """The tools of this toolset for one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        return [self._fork_tool(), self._merge_tool()] if "branch" in set(toolsets) else []

    def _fork_tool(self) -> OwnTool:
        return OwnTool(
            "session_fork",
            "Fork a session",
            "Make children of a session, which start from a copy of its state and of what its services can save: log in "
            "once, fork five browsers. The session goes on as it was. The result says what could not be copied. A copied "
            "login is the same login: a site that renews it with each use may log all copies out.",
            ForkArguments,
            ForkResult,
            self._fork,
            toolset="branch",
            pinned="never",
        )

    def _merge_tool(self) -> OwnTool:
        return OwnTool(
            "session_merge",
            "Merge the states of children",
            "Bring into a session's state what its children changed in theirs since they were forked, deletions too. The "
            "result lists where they disagreed. The children stay as they are.",
            MergeArguments,
            MergeResult,
            self._merge,
            destructive=True,
            idempotent=True,
            toolset="branch",
            pinned="never",
        )

    async def _fork(self, context: ToolContext, arguments: ForkArguments) -> Outcome:
        fork = await self._registry.branches.fork(
            context.principal, arguments.session_id, count=arguments.count, names=arguments.names
        )
        children: list[JSON] = [
            {"session_id": child.id, "name": child.record.name} for child in fork.children
        ]
        services: list[JSON] = [
            {"service": service.service, "copied": service.copied, "note": service.note}
            for service in fork.services
        ]
        content: JSON = {"children": children, "services": services}
        return Outcome(content, fork.parent.summary())

    async def _merge(self, context: ToolContext, arguments: MergeArguments) -> Outcome:
        merge = await self._registry.branches.merge(
            context.principal,
            arguments.session_id,
            arguments.sources,
            policy=arguments.policy,
            namespace=context.namespace,
            run=context.run,
        )
        conflicts: list[JSON] = [
            {"path": conflict.path, "source": conflict.source, "taken": conflict.was_taken}
            for conflict in merge.conflicts[:MAX_LISTED_CONFLICTS]
        ]
        info = await self._registry.info(context.principal, merge.state.session_id)
        content: JSON = {
            "version": merge.state.version,
            "conflicts": conflicts,
            "conflict_count": merge.conflicts.total,
        }
        return Outcome(content, summary(info))
