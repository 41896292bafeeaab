"""The scopes of access tokens, and the scope that each operation needs: the one table of both.

A scope includes those before it. Methods and tools that are not in the table need USE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, cast

from ..sessions.json_codec import JSON

Scope = Literal["statehold:read", "statehold:use", "statehold:control", "statehold:admin"]
READ: Final[Scope] = "statehold:read"
USE: Final[Scope] = "statehold:use"
CONTROL: Final[Scope] = "statehold:control"
"""To take over sessions and to manage them at the console, as a person."""
ADMIN: Final[Scope] = "statehold:admin"

SCOPES: Final[tuple[Scope, ...]] = (READ, USE, CONTROL, ADMIN)
"""All scopes, each of which includes those before it."""

METHOD_SCOPES: Final[Mapping[str, Scope]] = {
    "initialize": READ,
    "server/discover": READ,
    "ping": READ,
    "logging/setLevel": READ,
    "tools/list": READ,
    "tools/call": USE,
    "tasks/get": READ,
    "tasks/update": USE,
    "tasks/cancel": USE,
    "resources/list": READ,
    "resources/templates/list": READ,
    "resources/read": READ,
    "resources/subscribe": READ,
    "resources/unsubscribe": READ,
    "subscriptions/listen": READ,
    "prompts/list": READ,
    "prompts/get": READ,
    "completion/complete": READ,
    "skills/list": READ,
    "skills/get": READ,
    "events/list": READ,
    "events/poll": READ,
    "events/subscribe": USE,
    "events/unsubscribe": USE,
    "notifications/initialized": READ,
    "notifications/cancelled": READ,
    "notifications/progress": READ,
    "notifications/roots/list_changed": READ,
}
"""The methods of MCP, and those of an extension that only read. A tool call needs USE, unless the tool is one of ours."""

TOOL_SCOPES: Final[Mapping[str, Scope]] = {
    "session_create": USE,
    "session_list": READ,
    "session_info": READ,
    "session_close": USE,
    "session_pause": USE,
    "session_resume": USE,
    "session_extend": USE,
    "session_restart": USE,
    "session_rename": USE,
    "session_bind": USE,
    "session_unbind": USE,
    "session_request_human": USE,
    "session_share": CONTROL,
    "session_unshare": CONTROL,
    "session_view": READ,
    "state_get": READ,
    "state_update": USE,
    "session_history": READ,
    "session_note": USE,
    "session_run": USE,
    "session_summary": USE,
    "session_fork": USE,
    "session_merge": USE,
    "session_delete": ADMIN,
    "session_export": ADMIN,
    "session_import": ADMIN,
    "service_list": ADMIN,
    "server_stats": ADMIN,
    "call_result": READ,
    "call_list": READ,
    "call_cancel": USE,
}
"""Our own tools."""


class OperationScopes:
    """The scopes of the operations of a server that offers these tools of ours.

    A service may have a tool with the name of one of ours that is not offered; it needs USE as every tool of a service.
    """

    def __init__(self, own_tools: Iterable[str]) -> None:
        self._tools: Mapping[str, Scope] = {
            name: TOOL_SCOPES.get(name, ADMIN) for name in own_tools
        }

    def required(self, message: object) -> Scope:
        """Return the scope that a JSON-RPC message needs. An answer to a question needs READ: the call had its scope."""
        if not isinstance(message, dict):
            return READ
        members = cast("JSON", message)
        method, params = members.get("method"), members.get("params")
        if method is None:
            return READ
        if method != "tools/call":
            return _scope_in(METHOD_SCOPES, method)
        name: object = cast("JSON", params).get("name") if isinstance(params, dict) else None
        return _scope_in(self._tools, name)


def _scope_in(table: Mapping[str, Scope], name: object) -> Scope:
    return table.get(name, USE) if isinstance(name, str) else USE


def scopes_in(value: object) -> list[str]:
    """Return the scopes in a claim, a list or words separated by spaces, with those that they include."""
    words: object = value.split(" ") if isinstance(value, str) else value
    given = cast("list[object]", words) if isinstance(words, list) else []
    highest = max((SCOPES.index(scope) + 1 for scope in SCOPES if scope in given), default=0)
    return list(SCOPES[:highest])
