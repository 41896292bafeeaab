"""The calls of our own tools that a process runs for the command line: its user may act on every session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ...sessions.calls.notices import Delivery
from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.node import NODES
from ...sessions.records import Principal
from ...sessions.registry import Registry
from ...sessions.store.base import Store
from ...tools.own.definition import ToolContext
from ...tools.own.names import OWN_NAMES
from ...tools.own.toolsets import build_own_tools
from .operator_tools import OperatorTools
from .requests import ControlRequest
from .socket import serve_control

CAUSE = "cli"
"""The cause of a change in the journal of a session."""


class ControlHandler:
    """Runs control requests over one registry. It keeps no state and lives as long as the registry."""

    def __init__(
        self, registry: Registry, store: Store, services: Callable[[], list[JSON]] = list[JSON]
    ) -> None:
        self._registry = registry
        own_tools = build_own_tools(registry, store, OWN_NAMES, services=services)
        self._tools = own_tools | {tool.name: tool for tool in OperatorTools(registry).tools()}

    async def __call__(self, request: ControlRequest) -> JSON:
        """Run a tool and return the content of its result.

        Raises:
            InvalidArgument: there is no such tool, or an argument is wrong.
            SessionError: as the tool does.
        """
        tool = self._tools.get(request.tool)
        if tool is None:
            raise InvalidArgument(f"tool: there is no {request.tool:.100}.")
        context = ToolContext(Principal.of_key(request.owner), cause=CAUSE)
        outcome = await tool.run(context, request.arguments)
        if outcome.delivery is not None:
            self._return_notice(outcome.delivery)
        return outcome.content

    def _return_notice(self, delivery: Delivery) -> None:
        """Keep a notice about replaced connections for the next caller: the user of the command is not the caller."""
        if delivery.revert():
            for binding in delivery.bindings:
                self._registry.connector.save_soon(delivery.session, binding)


@asynccontextmanager
async def control(
    registry: Registry,
    store: Store,
    folder: Path | None,
    node: str,
    services: Callable[[], list[JSON]],
) -> AsyncGenerator[None]:
    """Let the command line reach this process while the block runs. Without a data folder (`folder` is None) it cannot."""
    if folder is None:
        yield
        return
    async with serve_control(folder / NODES, node, ControlHandler(registry, store, services)):
        yield


__all__ = ["ControlHandler", "control"]
