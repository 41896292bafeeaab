"""The toolset `state`: read and change the JSON object of a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ...sessions.errors import StateInvalid
from ...sessions.registry import Registry
from .own_tool import Outcome, OwnTool, ToolContext
from .results import StateValue
from .session_arguments import SessionArguments
from .session_tools import summary

Path = Annotated[
    str,
    Field(
        max_length=4096,
        description="JSON pointer, such as /cart/items/0. Default: all",
    ),
]


class GetArguments(SessionArguments):
    path: Path = ""
    required: Annotated[bool, Field(description="Fail when nothing is there")] = False


class UpdateArguments(SessionArguments):
    values: Annotated[
        Any,
        Field(
            description="A JSON object to merge: what it does not name stays, null deletes. With a path, any JSON value"
        ),
    ]
    mode: Annotated[
        Literal["merge", "replace"],
        Field(description="replace: nothing but values stays there"),
    ] = "merge"
    if_version: Annotated[
        int | None,
        Field(
            ge=0,
            description="Fail unless this is the version",
        ),
    ] = None
    path: Path = ""


@dataclass(frozen=True, slots=True)
class StateVersion:
    """The version of a state after a change."""

    version: int


class StateTools:
    """The tools of this toolset for one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        return [self._get_tool(), self._update_tool()] if "state" in set(toolsets) else []

    def _get_tool(self) -> OwnTool:
        return OwnTool(
            "state_get",
            "Read the state",
            "Read the JSON object that a session carries, and its version. Does not count as use.",
            GetArguments,
            StateValue,
            self._get,
            read_only=True,
            toolset="state",
            output_schema=StateValue,
            pinned="always",
        )

    def _update_tool(self) -> OwnTool:
        return OwnTool(
            "state_update",
            "Change the state",
            "Change the JSON object that a session carries, for what has to be known later. To change what you have read, "
            "pass its version as if_version; after state_conflict read again.",
            UpdateArguments,
            StateVersion,
            self._update,
            destructive=True,
            toolset="state",
            output_schema=StateVersion,
            pinned="always",
        )

    async def _get(self, context: ToolContext, arguments: GetArguments) -> Outcome:
        state = await self._registry.states.read(
            context.principal, arguments.session_id, arguments.path, context.namespace
        )
        if arguments.required and not state.exists:
            raise StateInvalid(
                f"There is nothing at {arguments.path:.200} in the state.",
                session_id=state.session_id,
                recovery="Store it with state_update first, or leave required out.",
            )
        info = await self._registry.info(context.principal, state.session_id)
        content = {"found": state.exists, "value": state.value, "version": state.version}
        return Outcome(content, summary(info))

    async def _update(self, context: ToolContext, arguments: UpdateArguments) -> Outcome:
        state = await self._registry.states.update(
            context.principal,
            arguments.session_id,
            arguments.values,
            mode=arguments.mode,
            if_version=arguments.if_version,
            path=arguments.path,
            run=context.run,
        )
        info = await self._registry.info(context.principal, state.session_id)
        return Outcome({"version": state.version}, summary(info))
