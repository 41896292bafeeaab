"""The names of Statehold's own tools, for code that has no running server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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
}
"""The names of the tools of each toolset."""


SHARING_NAMES: Final = frozenset({"session_share", "session_unshare"})
"""The tools that are offered only where callers are told apart."""


def own_names(toolsets: Iterable[str], *, shares: bool) -> list[str]:
    """Return the names of the tools of some toolsets. `shares`: callers are told apart, and may share sessions."""
    names = [name for toolset in toolsets for name in OWN_NAMES[toolset]]
    return names if shares else [name for name in names if name not in SHARING_NAMES]
