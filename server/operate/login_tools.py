"""The tools by which a command has a person log in for a login of a browser, and lends one; not offered over MCP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...sessions.registry import Registry
from ...tools.definition import Arguments
from ...tools.own.own_tool import Outcome, ToolContext
from ...tools.own.session_arguments import Name, SessionArguments
from .operator_tools import operator

if TYPE_CHECKING:
    from ..gateway.browser_logins import BrowserLogins


class LogInArguments(Arguments):
    login: Name


class LendArguments(SessionArguments):
    login: Name


class LoginTools:
    """The tools over the logins of one gateway."""

    def __init__(self, registry: Registry, logins: BrowserLogins) -> None:
        self._registry = registry
        self._logins = logins

    @operator
    async def log_in(self, context: ToolContext, args: LogInArguments) -> Outcome:
        """Create a session in which its person logs in at the sites of a login."""
        return Outcome({"session_id": await self._logins.log_in(context.principal, args.login)})

    @operator
    async def lend_login(self, context: ToolContext, args: LendArguments) -> Outcome:
        """Lend a login to a session."""
        session = await self._registry.ready(context.principal, args.session_id)
        await self._logins.lend(context, session, args.login)
        return Outcome({"session_id": session.id})
