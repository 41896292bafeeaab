"""Builds Statehold's own tools for one registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from ...sessions.store.base import Store
from .admin import AdminTools
from .branches import BranchTools
from .control import ControlTools
from .definition import OwnTool
from .history import HistoryTools
from .sessions import SessionTools
from .state import StateTools


def build_own_tools(
    registry: Registry,
    store: Store,
    toolsets: Iterable[str],
    *,
    services: Callable[[], list[JSON]] = list[JSON],
) -> dict[str, OwnTool]:
    """Return the tools of some toolsets by name, in a fixed order. `services` returns the status of the services."""
    chosen = set(toolsets)
    groups = (
        SessionTools(registry, services),
        ControlTools(registry),
        StateTools(registry),
        HistoryTools(registry),
        BranchTools(registry),
        AdminTools(registry, store, services),
    )
    return {tool.name: tool for tools in groups for tool in tools.tools(chosen)}


__all__ = ["build_own_tools"]
