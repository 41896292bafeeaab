"""Builds Statehold's own tools for one registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ...sessions.json_codec import JSON
from ...sessions.registry import Registry
from .admin_tools import AdminTools
from .branch_tools import BranchTools
from .call_tools import CallTools
from .control_tools import ConsoleAddress, ControlTools
from .history_tools import HistoryTools
from .own_tool import OwnTool
from .session_tools import Lend, SessionTools
from .sharing_tools import SharingTools
from .state_tools import StateTools
from .view_tools import ViewTools

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

OWN_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "core": ("session_create", "session_list", "session_info", "session_close"),
    "lifecycle": (
        *("session_pause", "session_resume", "session_extend", "session_restart"),
        *("session_rename", "session_bind", "session_unbind", "session_request_human"),
        *("session_share", "session_unshare"),
    ),
    "state": ("state_get", "state_update"),
    "history": ("session_history", "session_note", "session_run", "session_summary"),
    "branch": ("session_fork", "session_merge"),
    "admin": (
        *("session_delete", "session_export", "session_import"),
        *("service_list", "server_stats"),
    ),
    "view": ("session_view",),
    "calls": ("call_result", "call_list", "call_cancel"),
}
"""The names of the tools of each toolset."""


SHARING_NAMES: Final = frozenset({"session_share", "session_unshare"})
"""The tools that are offered only where callers are told apart."""


def own_names(toolsets: Iterable[str], *, shares: bool) -> list[str]:
    """Return the names of the tools of some toolsets. `shares`: callers are told apart, and may share sessions."""
    names = [name for toolset in toolsets for name in OWN_NAMES[toolset]]
    return names if shares else [name for name in names if name not in SHARING_NAMES]


def build_own_tools(
    registry: Registry,
    store: SQLStore,
    toolsets: Iterable[str],
    *,
    services: Callable[[], list[JSON]] = list[JSON],
    console: ConsoleAddress | None = None,
    shares: bool = False,
    lend: Lend | None = None,
) -> dict[str, OwnTool]:
    """Return the tools of some toolsets by name, in a fixed order. `services` returns the status of the services.

    `console`: the address of the console; without one, results name commands only. `shares`: callers are told apart,
    and may share sessions. `lend` lends a login to a session, if there are some.
    """
    chosen = set(toolsets)
    console = console or ConsoleAddress()
    groups = (
        SessionTools(registry, services, shares=shares, lend=lend),
        ControlTools(registry, console),
        *((SharingTools(registry),) if shares else ()),
        StateTools(registry),
        HistoryTools(registry),
        BranchTools(registry),
        AdminTools(registry, store, services),
        ViewTools(registry, console),
        CallTools(registry),
    )
    return {tool.name: tool for tools in groups for tool in tools.tools(chosen)}
