"""The tools of the user who runs the process. They act on the sessions of all principals and are not offered over MCP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...sessions.registry import Registry
from ...tools.definition import Arguments
from ...tools.own.definition import Outcome, OwnTool, ToolContext
from ...tools.own.results import SessionInfo
from ...tools.own.sessions import SessionArguments


class Screenshot(SessionArguments):
    kind: Literal["png", "jpeg", "webp"] = "png"
    full_page: bool = False


class HeldArguments(Arguments):
    session_ids: list[str] | None = None
    """Only these. None: all that this process holds."""


@dataclass(frozen=True, slots=True)
class HeldSessions:
    """The sessions that this process holds."""

    sessions: list[SessionInfo]


@dataclass(frozen=True, slots=True)
class StderrTails:
    """The last lines of stderr of the connections of a session, by service."""

    stderr: dict[str, str]


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session whose journal and snapshots are durable."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a page, in base64."""

    picture: str
    url: str
    title: str


class OperatorTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self) -> list[OwnTool]:
        """Return all of them."""
        return [
            OwnTool(
                "operator_sessions",
                "List the sessions of this process",
                "List the sessions that this process holds, of all principals.",
                HeldArguments,
                HeldSessions,
                self._sessions,
                read_only=True,
                toolset="operator",
            ),
            OwnTool(
                "operator_stderr",
                "Show the stderr of a session's programs",
                "Show the last lines of stderr of each connection of a session, by service.",
                SessionArguments,
                StderrTails,
                self._stderr,
                read_only=True,
                toolset="operator",
            ),
            OwnTool(
                "operator_save",
                "Save a session",
                "Make durable the journal of a session and the snapshots that its services can take.",
                SessionArguments,
                SavedSession,
                self._save,
                toolset="operator",
            ),
            OwnTool(
                "operator_screenshot",
                "Take a picture of a session's page",
                "Take a picture of the page that a session shows, without an effect on its callers.",
                Screenshot,
                Picture,
                self._screenshot,
                read_only=True,
                toolset="operator",
            ),
        ]

    async def _sessions(self, context: ToolContext, args: HeldArguments) -> Outcome:
        sessions = self._registry.owned_sessions()
        if args.session_ids is not None:
            chosen = set(args.session_ids)
            sessions = [session for session in sessions if session.id in chosen]
        return Outcome({"sessions": [session.info() for session in sessions]})

    async def _stderr(self, context: ToolContext, args: SessionArguments) -> Outcome:
        sessions = {session.id: session for session in self._registry.owned_sessions()}
        session = sessions.get(args.session_id)
        return Outcome({"stderr": {} if session is None else dict(session.stderr_tails())})

    async def _save(self, context: ToolContext, args: SessionArguments) -> Outcome:
        await self._registry.porting.save_session(context.principal, args.session_id)
        return Outcome({"session_id": args.session_id})

    async def _screenshot(self, context: ToolContext, args: Screenshot) -> Outcome:
        # Imported here: without a browser service it would take a tenth of the start of the process.
        from .screenshot import take_screenshot

        picture = await take_screenshot(
            self._registry,
            context.principal,
            args.session_id,
            kind=args.kind,
            full_page=args.full_page,
        )
        return Outcome(picture)
