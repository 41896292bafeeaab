"""Builds Statehold's own tools for one registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from .admin import AdminTools
from .branches import BranchTools
from .console_address import ConsoleAddress
from .control import ControlTools
from .definition import OwnTool
from .history import HistoryTools
from .sessions import SessionTools
from .sharing import SharingTools
from .state import StateTools
from .view import ViewTools

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


def build_own_tools(
    registry: Registry,
    store: SQLStore,
    toolsets: Iterable[str],
    *,
    services: Callable[[], list[JSON]] = list[JSON],
    console: ConsoleAddress | None = None,
    shares: bool = False,
    notify: Callable[[str, JSON], None] | None = None,
) -> dict[str, OwnTool]:
    """Return the tools of some toolsets by name, in a fixed order. `services` returns the status of the services.

    `console`: the address of the console; without one, results name commands only. `shares`: callers are told apart,
    and may share sessions. `notify` tells people outside of the console that an agent asks for a person.
    """
    chosen = set(toolsets)
    console = console or ConsoleAddress()
    groups = (
        SessionTools(registry, services, shares=shares),
        ControlTools(registry, console, notify),
        *((SharingTools(registry),) if shares else ()),
        StateTools(registry),
        HistoryTools(registry),
        BranchTools(registry),
        AdminTools(registry, store, services),
        ViewTools(registry, console),
    )
    return {tool.name: tool for tools in groups for tool in tools.tools(chosen)}
