"""The tools by which a person takes control of a session, keeps it, and hands it back; not offered over MCP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ...sessions.records import ControlEnd
from ...sessions.registry import Registry
from ...tools.own.definition import Outcome, OwnTool, ToolContext
from ...tools.own.sessions import SessionArguments


class TakeArguments(SessionArguments):
    holder: Annotated[str, Field(min_length=1, max_length=200)]


class RenewArguments(SessionArguments):
    epoch: int


class GiveBackArguments(SessionArguments):
    epoch: int
    end: Literal["done", "could_not"] = "done"
    reply: Annotated[str | None, Field(max_length=500)] = None
    """Words for the agent."""


@dataclass(frozen=True, slots=True)
class ControlEpoch:
    """The epoch of a person's control of a session."""

    session_id: str
    epoch: int


class PersonTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._controls = registry.controls

    def tools(self) -> list[OwnTool]:
        """Return all of them."""
        return [
            OwnTool(
                "operator_take_control",
                "Take control of a session",
                "Take control of a session for a person: running calls end, new ones are refused.",
                TakeArguments,
                ControlEpoch,
                self._take,
                toolset="operator",
            ),
            OwnTool(
                "operator_renew_control",
                "Keep control of a session",
                "Extend the control that a person took of a session.",
                RenewArguments,
                ControlEpoch,
                self._renew,
                toolset="operator",
            ),
            OwnTool(
                "operator_give_back",
                "Hand a session back to its agent",
                "End the control that a person took of a session.",
                GiveBackArguments,
                ControlEpoch,
                self._give_back,
                toolset="operator",
            ),
        ]

    async def _take(self, context: ToolContext, args: TakeArguments) -> Outcome:
        session = await self._controls.take(context.principal, args.session_id, args.holder)
        return Outcome({"session_id": session.id, "epoch": session.record.control.epoch})

    async def _renew(self, context: ToolContext, args: RenewArguments) -> Outcome:
        session = await self._controls.renew(context.principal, args.session_id, args.epoch)
        return Outcome({"session_id": session.id, "epoch": args.epoch})

    async def _give_back(self, context: ToolContext, args: GiveBackArguments) -> Outcome:
        session = await self._controls.give_back(
            context.principal,
            args.session_id,
            args.epoch,
            end=ControlEnd(args.end),
            reply=args.reply,
        )
        return Outcome({"session_id": session.id, "epoch": args.epoch})


__all__ = ["PersonTools"]
