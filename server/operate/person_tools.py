"""The tools by which a person takes control of a session, keeps it, and hands it back; not offered over MCP."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from ...sessions.errors import InvalidArgument, ServiceUnavailable
from ...sessions.journal.entries import LinkEvent
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import ControlEnd
from ...sessions.registry import Registry
from ...tools.own.definition import Outcome, OwnTool, ToolContext
from ...tools.own.sessions import SessionArguments
from .pictures import browser_bindings, open_blank_page, open_browser


class PersonArguments(SessionArguments):
    user: str | None = None
    """Identifies the person over several logins."""
    login: str | None = None
    """The id of the login."""


class TakeArguments(PersonArguments):
    holder: Annotated[str, Field(min_length=1, max_length=200)]


class RenewArguments(PersonArguments):
    epoch: int


class GiveBackArguments(PersonArguments):
    epoch: int
    by_operator: bool = False
    end: Literal["done", "could_not"] = "done"
    reply: Annotated[str | None, Field(max_length=500)] = None
    """Words for the agent."""


class LinkArguments(SessionArguments):
    event: LinkEvent
    link: str
    by: Annotated[str, Field(min_length=1, max_length=200)]
    rights: str
    guest: str
    """Identifies the person who uses the link."""


@dataclass(frozen=True, slots=True)
class NotedLink:
    """A session with a link that its journal has."""

    session_id: str


class InputArguments(PersonArguments):
    epoch: int
    tab: int | None = None
    number: int | None = None
    events: list[dict[str, Any]]
    """See InputBatch."""


@dataclass(frozen=True, slots=True)
class ControlEpoch:
    """The epoch of a person's control of a session."""

    session_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class InputResult:
    """The outcome of some input. See InputOutcome."""

    copied: str | None
    refusals: list[str]
    editing: bool | None
    field: dict[str, Any] | None


class PersonTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
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
            OwnTool(
                "operator_note_link",
                "Write a link into the journal",
                "Write into the journal that a person made, opened or revoked a link; a revoked guest loses control.",
                LinkArguments,
                NotedLink,
                self._note_link,
                toolset="operator",
            ),
            OwnTool(
                "operator_input",
                "Use the browser of a session",
                "Do in the browser of a session what the person who has control of it did.",
                InputArguments,
                InputResult,
                self._input,
                toolset="operator",
            ),
        ]

    async def _take(self, context: ToolContext, args: TakeArguments) -> Outcome:
        principal = context.principal
        await self._open_browser(await self._registry.ready(principal, args.session_id))
        session = await self._controls.take(
            principal, args.session_id, args.holder, user=args.user, login=args.login
        )
        # Without a page the person has control all the same, and can open one.
        with suppress(ServiceUnavailable):
            await open_blank_page(self._registry, principal, session.id)
        return Outcome({"session_id": session.id, "epoch": session.record.control.epoch})

    async def _open_browser(self, session: LiveSession) -> None:
        """Open the browser of a session that no agent has used yet: a person would see nothing."""
        bindings = browser_bindings(session)
        is_open = any(binding.usable for binding in bindings)
        if bindings and not is_open and not session.has_human_driver:
            await self._registry.connector.connect(session, bindings[0])

    async def _renew(self, context: ToolContext, args: RenewArguments) -> Outcome:
        session = await self._controls.renew(
            context.principal, args.session_id, args.epoch, user=args.user, login=args.login
        )
        return Outcome({"session_id": session.id, "epoch": session.record.control.epoch})

    async def _give_back(self, context: ToolContext, args: GiveBackArguments) -> Outcome:
        session = await self._controls.give_back(
            context.principal,
            args.session_id,
            args.epoch,
            end=ControlEnd(args.end),
            reply=args.reply,
            login=args.login,
            by_operator=args.by_operator,
        )
        return Outcome({"session_id": session.id, "epoch": args.epoch})

    async def _note_link(self, context: ToolContext, args: LinkArguments) -> Outcome:
        session = await self._controls.note_link(
            context.principal,
            args.session_id,
            args.event,
            link=args.link,
            by=args.by,
            rights=args.rights,
            guest=args.guest,
        )
        return Outcome({"session_id": session.id})

    async def _input(self, context: ToolContext, args: InputArguments) -> Outcome:
        # Imported here: a process that no person uses does not need it.
        from ...tools.browser.input.events import InputBatch

        members = {"epoch", "tab", "number", "events"}
        try:
            batch = InputBatch.model_validate(args.model_dump(include=members))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, first["loc"]))
            raise InvalidArgument(f"{location}: {first['msg'].lower()}.") from None
        connection = open_browser(self._registry, context.principal, args.session_id)
        grant = await self._controls.grant(
            context.principal, args.session_id, batch.epoch, login=args.login
        )
        outcome = await connection.human_control.send(batch, grant)
        content: JSON = {"copied": outcome.copied, "refusals": list(outcome.refusals)}
        field = None if outcome.field is None else outcome.field.model_dump()
        return Outcome({**content, "editing": outcome.editing, "field": field})
