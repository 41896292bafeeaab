"""The toolset `state`: reading and changing the JSON object that a session carries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ...sessions.errors import StateInvalid
from ...sessions.registry import Registry
from .definition import Context, Outcome, OwnTool
from .sessions import One, summary

Path = Annotated[
    str,
    Field(
        max_length=4096,
        description="A place in the state as a JSON pointer, such as /cart/items/0. Default: all of it.",
    ),
]


class Get(One):
    path: Path = ""
    required: Annotated[
        bool, Field(description="Whether it is an error when nothing is there.")
    ] = False


class Update(One):
    values: Annotated[
        Any,
        Field(
            description="A JSON object to merge into the state: what it does not name stays, null deletes. "
            "With a path, any JSON value."
        ),
    ]
    mode: Annotated[
        Literal["merge", "replace"],
        Field(description="merge, or replace all that is there by values."),
    ] = "merge"
    if_version: Annotated[
        int | None,
        Field(
            ge=0,
            description="Change nothing unless this is the version of the state, as state_get returned it.",
        ),
    ] = None
    path: Path = ""


class Got(BaseModel):
    found: bool
    value: Any
    version: int


class Updated(BaseModel):
    version: int


class StateTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools when their toolset is among the chosen ones."""
        return [self._getting(), self._updating()] if "state" in set(toolsets) else []

    def _getting(self) -> OwnTool:
        return OwnTool(
            "state_get",
            "Read a session's state",
            "Read the JSON object that a session carries, or one place in it, with its version. "
            "Reading does not count as use.",
            Get,
            Got,
            self._get,
            read_only=True,
            toolset="state",
        )

    def _updating(self) -> OwnTool:
        return OwnTool(
            "state_update",
            "Change a session's state",
            "Change the JSON object that a session carries, for what you or others have to know later. The new version is "
            "stored before this returns. To change what you have read, pass its version as if_version; after "
            "state_conflict read again.",
            Update,
            Updated,
            self._update,
            destructive=True,
            toolset="state",
        )

    async def _get(self, context: Context, args: Get) -> Outcome:
        found = await self._registry.states.read(
            context.principal, args.session_id, args.path, context.namespace
        )
        if args.required and not found.exists:
            raise StateInvalid(
                f"There is nothing at {args.path:.200} in the state.",
                session_id=found.session_id,
                recovery="Store it with state_update first, or leave required out.",
            )
        info = await self._registry.info(context.principal, found.session_id)
        content = {"found": found.exists, "value": found.value, "version": found.version}
        return Outcome(content, summary(info))

    async def _update(self, context: Context, args: Update) -> Outcome:
        newer = await self._registry.states.update(
            context.principal,
            args.session_id,
            args.values,
            mode=args.mode,
            if_version=args.if_version,
            path=args.path,
        )
        info = await self._registry.info(context.principal, newer.session_id)
        return Outcome({"version": newer.version}, summary(info))


__all__ = ["StateTools"]
