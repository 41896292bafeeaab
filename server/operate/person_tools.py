"""The tools by which a person takes control of a session, keeps it, and hands it back; not offered over MCP."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from ...sessions.errors import InvalidArgument, ServiceUnavailable
from ...sessions.journal.entries import LinkEvent
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import ControlEnd
from ...sessions.registry import Registry
from ...tools.own.own_tool import Outcome, ToolContext
from ...tools.own.session_arguments import SessionArguments
from .operator_tools import operator
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


class InputArguments(PersonArguments):
    epoch: int
    tab: int | None = None
    number: int | None = None
    events: list[dict[str, Any]]
    """See InputBatch."""


class PersonTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._controls = registry.controls

    @operator
    async def take_control(self, context: ToolContext, args: TakeArguments) -> Outcome:
        """Take control of a session for a person: running calls end, new ones are refused."""
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

    @operator
    async def renew_control(self, context: ToolContext, args: RenewArguments) -> Outcome:
        """Extend the control that a person took of a session."""
        session = await self._controls.renew(
            context.principal, args.session_id, args.epoch, user=args.user, login=args.login
        )
        return Outcome({"session_id": session.id, "epoch": session.record.control.epoch})

    @operator
    async def give_back(self, context: ToolContext, args: GiveBackArguments) -> Outcome:
        """End the control that a person took of a session."""
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

    @operator
    async def record_link(self, context: ToolContext, args: LinkArguments) -> Outcome:
        """Write into the journal that a person made, opened or revoked a link; a revoked guest loses control."""
        session = await self._controls.record_link(
            context.principal,
            args.session_id,
            args.event,
            link=args.link,
            by=args.by,
            rights=args.rights,
            guest=args.guest,
        )
        return Outcome({"session_id": session.id})

    @operator
    async def input(self, context: ToolContext, args: InputArguments) -> Outcome:
        """Do in the browser of a session what the person who has control of it did; see InputOutcome."""
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
