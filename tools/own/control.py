"""The tool by which an agent asks a person to take over its session."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from ...sessions.calls.notices import take_notices
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import ControlLease, SessionDriver
from ...sessions.registry import Registry
from ...sessions.views import describe_control
from .definition import Outcome, OwnTool, ToolContext
from .results import ControlInfo
from .sessions import SessionArguments

PROGRESS_SECONDS: Final = 1.0
"""Seconds between two progress messages, and between two looks at a session of another process."""
LONGEST_WAIT: Final = 600.0


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
    """How a person opens the session."""
    next_step: str


class ControlTools:
    """The tools about control of a session, for one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

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
                pinned="always",
            )
        ]

    async def _request(self, context: ToolContext, arguments: RequestHumanArguments) -> Outcome:
        controls, principal = self._registry.controls, context.principal
        session = await controls.request(principal, arguments.session_id, arguments.reason)
        lease = await self._wait(context, session.id, arguments.wait_seconds)
        with suppress(SessionError):
            # A window gave the session up meanwhile, and the same session was claimed anew.
            session = await self._registry.find(principal, session.id)
        content: JSON = {
            "session_id": session.id,
            "control": describe_control(lease),
            "address": f"statehold sessions open {shlex.quote(session.record.name or session.id)}",
            "next_step": _next_step(lease),
        }
        return self._outcome(session, content, lease)

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
            if context.caller is not None and context.caller.wants_progress:
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


def _next_step(lease: ControlLease) -> str:
    if lease.driver is SessionDriver.REQUESTED:
        return "Nobody came yet. Tell the user the address; call this again to wait on, or go on alone."
    if lease.driver is SessionDriver.HUMAN:
        return "A person has control. Call this again to wait for the end."
    return "Go on. Look at the page again before you act."


__all__ = ["ControlTools"]
