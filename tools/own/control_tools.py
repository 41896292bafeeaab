"""The tool by which an agent asks a person to take over its session."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final
from urllib.parse import quote

import anyio
from pydantic import Field

from ...sessions.calls.notices import take_notices
from ...sessions.concurrency import RaceLost, race
from ...sessions.errors import NotAllowed, SessionError, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import ControlLease, Principal, SessionDriver
from ...sessions.registry import Registry
from ...sessions.views import describe_control
from .own_tool import Outcome, OwnTool, ToolContext
from .results import ControlInfo
from .session_arguments import SessionArguments


class ConsoleAddress:
    """The address at which people open the console of this process, as far as it is known. It grants nothing.

    The server sets it when the port of the console opens. An address that was configured, `public_url`, does not change.
    """

    def __init__(self, public_url: str | None = None) -> None:
        self._public_url = public_url
        self._local_url: str | None = None

    def serve_at(self, url: str | None) -> None:
        """Remember the address of the console without a path; None while no port is open."""
        self._local_url = url or self._local_url

    def of_session(self, session_id: str) -> str | None:
        """Return the address of a session in the console, None if the console has no address yet."""
        return self.of_page(f"s/{quote(session_id, safe='')}")

    def of_approval(self, approval_id: str) -> str | None:
        """Return the address at which a person decides about a call, None if the console has no address yet."""
        return self.of_page(f"approvals/{quote(approval_id, safe='')}")

    def of_page(self, page: str) -> str | None:
        """Return the address of a page of the console, None if the console has no address yet."""
        url = self._public_url or self._local_url
        return None if url is None else f"{url}/console#/{page}"


PROGRESS_SECONDS: Final = 1.0
"""Seconds between two progress messages, and between two looks at a session of another process."""
LONGEST_WAIT: Final = 600.0
_REFUSALS: Final = {
    "decline": "The user declined to take over. Go on alone, or ask the user what to do.",
    "cancel": "The user put the question off. Tell the user the address; call this again to wait.",
}
"""The step after each answer to the offered address that is no yes."""


class RequestHumanArguments(SessionArguments):
    reason: Annotated[
        str,
        Field(min_length=1, max_length=500, description="What the person should do, and why"),
    ]
    wait_seconds: Annotated[
        float,
        Field(ge=0, le=LONGEST_WAIT, description="Wait so long for the person to finish"),
    ] = 50.0


@dataclass(frozen=True, slots=True)
class HumanRequest:
    """A request for a person, or its end. `next_step` says what to do now."""

    session_id: str
    control: ControlInfo
    address: str
    """Where a person opens the session: the console's address of it, or a command. It grants nothing."""
    commands: list[str]
    """The commands that open it for the user of this machine."""
    next_step: str


class ControlTools:
    """The tools about control of a session, for one registry."""

    def __init__(
        self,
        registry: Registry,
        console: ConsoleAddress,
    ) -> None:
        self._registry = registry
        self._console = console

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        if "lifecycle" not in set(toolsets):
            return []
        return [
            OwnTool(
                "session_request_human",
                "Ask a person to take over",
                "Ask a person to do what only a person can: a captcha, a second factor, a decision. Tell the user the "
                "address. While the person has control, calls of the session are refused; afterwards the result says how "
                "it ended.",
                RequestHumanArguments,
                HumanRequest,
                self._request,
                toolset="lifecycle",
                idempotent=True,
                pinned="always",
                asks_caller=True,
            )
        ]

    async def _request(self, context: ToolContext, arguments: RequestHumanArguments) -> Outcome:
        controls, principal = self._registry.controls, context.principal
        session = await self._registry.ready(principal, arguments.session_id)
        was_idle = session.record.control.driver is SessionDriver.AGENT
        wait_seconds, answer = arguments.wait_seconds, None
        session = await controls.request(
            principal, session.id, arguments.reason, wait_seconds=wait_seconds
        )
        is_new = was_idle and session.record.control.driver is SessionDriver.REQUESTED
        since = session.record.control.since
        try:
            if is_new and wait_seconds:
                answer = await self._offer(context, session)
                if answer in _REFUSALS:
                    wait_seconds = 0.0
            lease = await self._wait(context, session.id, wait_seconds)
        except anyio.get_cancelled_exc_class():
            await self._note_agent_left(principal, session.id, since)
            raise
        with suppress(SessionError):
            # The session may have been given up meanwhile, and claimed anew.
            session = await self._registry.find(principal, session.id)
        content: JSON = {
            "session_id": session.id,
            "control": describe_control(lease),
            **self._ways_in(session),
            "next_step": _next_step(lease, answer),
        }
        return self._outcome(session, content, lease)

    async def _note_agent_left(self, principal: Principal, session_id: str, since: float) -> None:
        # A process that ends cancels its calls too, and their agents may be there.
        if not self._registry.draining:
            with anyio.CancelScope(shield=True), suppress(SessionError, StoreUnavailable):
                await self._registry.controls.note_agent_left(principal, session_id, since)

    def _ways_in(self, session: LiveSession) -> JSON:
        """Return the address of a session for a person, and the commands that open it on this machine."""
        ref = shlex.quote(session.record.name or session.id)
        commands = [f"statehold sessions open {ref}"]
        address = self._console.of_session(session.id)
        return {"address": address or commands[0], "commands": commands}

    async def _offer(self, context: ToolContext, session: LiveSession) -> str | None:
        """Have the client open the address of the request. Return the user's answer, None if the client cannot or may not.

        The answer only says whether the user wants to open it: the lease tells when they are done.
        """
        url, caller = self._console.of_session(session.id), context.caller
        if url is None or caller is None:
            return None
        message = f"An agent asks you to take over: {session.record.control.reason}"
        params = caller.options.ask_to_open(url, message)
        with suppress(NotAllowed, RaceLost), anyio.move_on_after(LONGEST_WAIT):
            # A process that ends waits for calls with an operation id, but not for the user.
            ask = partial(caller.ask, "elicitation/create", params)
            answer = await race(session.ownership_ended.wait, ask)
            return str(answer.get("action"))
        return None

    async def _wait(self, context: ToolContext, session_id: str, seconds: float) -> ControlLease:
        """Wait until the person has finished, and return the lease as it is then. Progress is reported meanwhile."""
        registry, clock = self._registry, self._registry.core.clock
        begin = clock.now()
        while True:
            lease = await registry.controls.lease_of(context.principal, session_id)
            elapsed = clock.now() - begin
            if lease.driver is SessionDriver.AGENT or elapsed >= seconds or registry.draining:
                return lease
            await registry.controls.wait_for_change(
                context.principal, session_id, seconds=min(PROGRESS_SECONDS, seconds - elapsed)
            )
            if context.caller is not None and context.caller.options.wants_progress:
                words = "has control" if lease.driver is SessionDriver.HUMAN else "is asked"
                await context.caller.progress(clock.now() - begin, seconds, f"A person {words}")

    def _outcome(self, session: LiveSession, content: JSON, lease: ControlLease) -> Outcome:
        if lease.driver is not SessionDriver.AGENT:
            return Outcome(content, session.summary())
        delivery = take_notices(session, *session.bindings.values())
        if delivery is None:
            return Outcome(content, session.summary())
        self._registry.connector.save_notices_soon(session, delivery.bindings)
        return Outcome(content, session.summary(), delivery.text, delivery)


def _next_step(lease: ControlLease, answer: str | None) -> str:
    if lease.driver is SessionDriver.REQUESTED and answer in _REFUSALS:
        return _REFUSALS[answer]
    if lease.driver is SessionDriver.REQUESTED:
        return "Nobody came yet. Tell the user the address; call this again to wait on, or go on alone."
    if lease.driver is SessionDriver.HUMAN:
        return "A person has control. Call this again to wait for the end."
    return "Go on. Look at the page again before you act."
