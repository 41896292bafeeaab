"""The calls of our own tools that a process runs for the command line: its user may act on every session."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from ...access.audit.recorder import Actor, Audit
from ...sessions.calls.notices import Delivery
from ...sessions.cluster.placement import place_here
from ...sessions.errors import InvalidArgument, SessionError, SessionLimit, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.live.budget import Budget
from ...sessions.records import Principal
from ...sessions.registry import Registry
from ...tools.own.own_tool import OwnTool, ToolContext
from ...tools.own.toolsets import OWN_NAMES, build_own_tools
from ..sockets.local_socket import send_content, send_error
from .login_tools import LoginTools
from .operator_tools import OperatorTools, operator_tools
from .person_tools import PersonTools
from .requests import OperatorRequest

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore
    from ..gateway.browser_logins import BrowserLogins

CALL_SECONDS: Final = 120.0
MAX_REQUESTS: Final = 32
"""Requests that run at once. Each owner of sessions has a share of them."""
MAX_WAITING: Final = 1000

RunRequest = Callable[[OperatorRequest], Awaitable[JSON]]

logger = logging.getLogger(__name__)


class OperatorHandler:
    """Runs operator requests over one registry. It keeps no state and lives as long as the registry.

    `data` is the data folder, in which the files of sessions are.
    """

    def __init__(
        self,
        registry: Registry,
        store: SQLStore,
        services: Callable[[], list[JSON]] = list[JSON],
        *,
        data: Path | None = None,
        audit: Audit | None = None,
        logins: BrowserLogins | None = None,
    ) -> None:
        """`audit` records the requests of commands; those of the console are recorded where they arrive."""
        self._registry = registry
        self._audit = audit or Audit()
        own_tools = build_own_tools(registry, store, OWN_NAMES, services=services, shares=True)
        tools = [
            *operator_tools(OperatorTools(registry, data)),
            *operator_tools(PersonTools(registry)),
            *(() if logins is None else operator_tools(LoginTools(registry, logins))),
        ]
        self._tools = own_tools | {tool.name: tool for tool in tools}

    async def __call__(self, request: OperatorRequest) -> JSON:
        """Run a tool and return the content of its result.

        Raises:
            InvalidArgument: there is no such tool, or an argument is wrong.
            SessionError: as the tool does.
        """
        tool = self._tools.get(request.tool)
        if tool is None:
            raise InvalidArgument(f"tool: there is no {request.tool:.100}.")
        arguments = dict(request.arguments)
        session: object = arguments.pop("session_id", None)
        session_id = session if isinstance(session, str) else None
        principal = Principal.of_key(request.owner)
        context = ToolContext(principal, pinned_session=session_id, cause=request.cause)
        if request.cause != "cli":
            return await self._run(tool, context, arguments)
        with await self._audit.admit(Actor.of_command(), request.tool, session_id):
            return await self._run(tool, context, arguments)

    async def _run(self, tool: OwnTool, context: ToolContext, arguments: JSON) -> JSON:
        outcome = await tool.run(context, arguments)
        if outcome.delivery is not None:
            self._return_notice(outcome.delivery)
        return outcome.content

    def _return_notice(self, delivery: Delivery) -> None:
        """Keep a notice about replaced connections for the next caller: the user of the command is not the caller."""
        if delivery.revert():
            self._registry.connector.save_notices_soon(delivery.session, delivery.bindings)


class OperateVerb:
    """The handler of the verb `operate` of a local socket; `run` runs a request and returns the content of its result.

    Of many requests at once the later ones wait. A request may take `seconds`; it is cancelled then.
    """

    def __init__(self, run: RunRequest, *, seconds: float = CALL_SECONDS) -> None:
        self._run = run
        self._seconds = seconds
        self._places = Budget(MAX_REQUESTS, queue=MAX_WAITING, queue_seconds=seconds, shared=True)

    async def __call__(self, members: JSON, connection: socket.socket) -> None:
        with closing(connection):
            # The user asked this node: it does not pass a session without an owner on.
            with place_here():
                answer = await self.answer(members)
            if "error" in answer:
                await send_error(connection, **answer["error"])
            else:
                await send_content(connection, answer["content"])

    async def answer(self, members: JSON) -> JSON:
        """Run the request with these members, and return its answer: `content` or `error`."""
        try:
            request = OperatorRequest.parse(members)
        except InvalidArgument as error:
            return _refusal(error.code, error.message, error.recovery)
        try:
            async with self._places.place(request.owner):
                return await self._answer(request)
        except SessionLimit as error:
            return _refusal(error.code, "Too many requests wait.", "Try again later.")

    async def _answer(self, request: OperatorRequest) -> JSON:
        try:
            with anyio.fail_after(self._seconds):
                return {"content": await self._run(request)}
        except SessionError as error:
            return _refusal(error.code, error.message, error.recovery)
        except StoreUnavailable as error:
            return _refusal("store_unavailable", str(error), "Try again later.")
        except TimeoutError:
            recovery = "Look at the session, then try again."
            return _refusal("call_timeout", "It took too long.", recovery)
        except Exception:
            logger.exception("an operator request failed")
            return _refusal("internal", "It failed.", "See the log of the process that owns it.")


def _refusal(code: str, message: str, recovery: str) -> JSON:
    return {"error": {"code": code, "message": message, "recovery": recovery}}
