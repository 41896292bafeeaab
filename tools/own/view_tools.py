"""The toolset `view`: a still of a session for the person in a chat, and the page by which hosts of MCP Apps show it."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...sessions.errors import HumanInControl
from ...sessions.json_codec import JSON
from ...sessions.live.session import LiveSession
from ...sessions.records import SessionDriver
from ...sessions.registry import Registry
from ...sessions.services import PageView, Viewable
from .control_tools import ConsoleAddress
from .own_tool import Outcome, OwnTool, ToolContext
from .session_arguments import SessionArguments
from .session_tools import summary

PAGE_URI: Final = "ui://statehold/session-view"
PAGE_TYPE: Final = "text/html;profile=mcp-app"
PICTURE_BYTES: Final = 100_000
_PAGE: Final = Path(__file__).with_name("session_view.html")


@dataclass(frozen=True, slots=True)
class SessionStill:
    """A session as it looks now. The picture, if there is one, is a second content block."""

    session_id: str
    name: str | None
    status: str
    driver: str
    url: str | None
    title: str | None
    tabs: list[str] = field(default_factory=list[str])
    current_tab: int | None = None
    problem: str | None = None
    """Why there is no picture."""
    address: str | None = None
    """The session in the console; it grants nothing."""


class ViewTools:
    """The tools of this toolset for one registry."""

    def __init__(self, registry: Registry, console: ConsoleAddress) -> None:
        self._registry = registry
        self._console = console

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        if "view" not in set(toolsets):
            return []
        return [
            OwnTool(
                "session_view",
                "Show a session to the user",
                "Show the user a session as it looks now: a picture of its page, its tabs, who drives it, and the address "
                "that opens it. Does not count as use.",
                SessionArguments,
                SessionStill,
                self._view,
                toolset="view",
                read_only=True,
                page_uri=PAGE_URI,
            )
        ]

    async def _view(self, context: ToolContext, arguments: SessionArguments) -> Outcome:
        info = await self._registry.info_of_owner(
            context.principal, arguments.session_id, context.namespace
        )
        session_id: str = info["session_id"]
        control: JSON = info["control"] or {"driver": SessionDriver.AGENT}
        if control["driver"] == SessionDriver.HUMAN:
            raise HumanInControl(session_id, control["reason"] or "")
        session = self._registry.live(context.principal, session_id)
        view = None if session is None else await _view_of(session)
        content: JSON = {
            "session_id": session_id,
            "name": info["name"],
            "status": info["status"],
            "driver": control["driver"],
            "url": None if view is None else view.url,
            "title": None if view is None else view.title,
            "tabs": [] if view is None else list(view.tabs),
            "current_tab": None if view is None else view.current,
            "problem": "No page is open." if view is None else view.problem,
            "address": self._console.of_session(session_id),
        }
        return Outcome(content, summary(info), blocks=_picture_block(view))


async def _view_of(session: LiveSession) -> PageView | None:
    """Return the open pages of a session, None if it has none.

    Raises:
        HumanInControl: a person drives it: nobody else sees what is typed.
    """
    lives = [binding.live for binding in session.bindings.values()]
    for live in lives:
        if live is not None and live.usable and isinstance(live.connection, Viewable):
            # With this lock no person gets control meanwhile, and the session is not paused; calls go on.
            async with session.changing:
                session.require_agent()
                return await live.connection.view(most_bytes=PICTURE_BYTES)
    return None


def _picture_block(view: PageView | None) -> list[JSON]:
    if view is None or view.jpeg is None:
        return []
    data = base64.b64encode(view.jpeg).decode()
    return [{"type": "image", "data": data, "mimeType": "image/jpeg"}]


def read_page() -> JSON:
    """Return the page that shows a result of session_view, as the content of a resource."""
    return {
        "uri": PAGE_URI,
        "mimeType": PAGE_TYPE,
        "text": _PAGE.read_text(encoding="utf-8"),
        # Without `csp` the host allows no other origin.
        "_meta": {"ui": {"prefersBorder": True}},
    }
