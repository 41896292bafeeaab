"""The requests that name a session, on every route: tools, resources, prompts, URLs of sessions, the console.

Those of the console come from its table of routes. A session of another principal has to be the same as an unknown one in
each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from statehold.console.app import ROUTES
from statehold.sessions.json_codec import JSON

VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
ACCEPT: Final = {"accept": "application/json, text/event-stream"}
SESSION: Final = "{session}"
"""The placeholder for the id of the session in paths and bodies."""

TOOLS: Final[tuple[tuple[str, JSON], ...]] = (
    ("session_info", {}),
    ("session_pause", {}),
    ("session_resume", {}),
    ("session_extend", {}),
    ("session_restart", {}),
    ("session_rename", {"name": "mine now"}),
    ("session_bind", {"service": "asking"}),
    ("session_unbind", {"service": "asking"}),
    ("session_close", {"force": True}),
    ("session_fork", {}),
    ("session_request_human", {"reason": "look", "wait_seconds": 0}),
    ("session_share", {"subject": "eve"}),
    ("session_unshare", {"subject": "eve"}),
    ("session_view", {}),
    ("session_merge", {"sources": ["sh_" + "b" * 26]}),
    ("state_get", {}),
    ("state_update", {"values": {"n": 1}}),
    ("session_history", {}),
    ("session_note", {"role": "user", "content": "x"}),
    ("session_run", {"run_id": "r1", "status": "running"}),
    ("session_summary", {}),
    ("session_summary", {"text": "mine"}),
    ("session_export", {"secrets": True}),
    ("session_delete", {"force": True}),
    ("inc", {}),
    ("fail", {}),
    ("ask", {}),
)
"""The tools that take a session, with what they need besides. The last ones are those of the service `asking`."""
BODIES: Final[Mapping[str, JSON]] = {
    "act_renew": {"epoch": 1},
    "act_cancel_call": {"task_id": "sh_x.task-1"},
    "act_give_back": {"epoch": 1},
    "input": {"epoch": 1, "events": []},
}
"""The bodies of requests of the console that may not be empty, by the names of their routes."""


@dataclass(frozen=True)
class SessionRequest:
    """A request with a place for the id of a session."""

    title: str
    method: str
    path: str
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_of_console(self) -> bool:
        """Whether a login checks the caller, instead of a token."""
        return self.path.startswith("/api/v1")

    def path_of(self, session_id: str) -> str:
        return self.path.replace(SESSION, quote(session_id, safe=""))

    def body_of(self, session_id: str) -> bytes | None:
        text = json.dumps(session_id)[1:-1]
        return None if self.body is None else self.body.replace(SESSION, text).encode()

    def headers_of(self, session_id: str) -> dict[str, str]:
        return {name: value.replace(SESSION, session_id) for name, value in self.headers.items()}


def session_requests(
    transport_session: str | None = None, csrf: str | None = None
) -> list[SessionRequest]:
    """Return all of them. Legacy ones need a transport session of the caller, those of the console its CSRF token."""
    found = [
        _modern(
            f"tools/call {tool} {' '.join(more)}".rstrip(),
            *("tools/call", tool, {"name": tool, "arguments": {"session_id": SESSION, **more}}),
        )
        for tool, more in TOOLS
    ]
    for title, uri in (
        ("of a state", f"session://{SESSION}/state"),
        ("of a service", f"session://{SESSION}/asking/quick%3A%2F%2Fvalue"),
    ):
        found.append(_modern(f"resources/read {title}", "resources/read", uri, {"uri": uri}))
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        task = f"{SESSION}.task-1"
        found.append(_modern(method, method, task, {"taskId": task, "inputResponses": {}}))
    prompt: JSON = {"name": "report", "arguments": {"session_id": SESSION}}
    found.append(_modern("prompts/get", "prompts/get", "report", prompt))
    for tool in ("inc", "session_info"):
        pinned: JSON = {"name": tool, "arguments": {}}
        title, path = f"{tool} at the URL of a session", f"/s/{SESSION}/mcp"
        found.append(_modern(title, "tools/call", tool, pinned, path=path))
    if transport_session is not None:
        found += _legacy(transport_session)
    if csrf is not None:
        found += _console(csrf)
    return found


def _modern(
    title: str, method: str, name: str, params: JSON, *, path: str = "/mcp"
) -> SessionRequest:
    meta: JSON = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}}
        },
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "0"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        **ACCEPT,
        "content-type": "application/json",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
        "mcp-name": name,
    }
    return SessionRequest(title, "POST", path, json.dumps(message), headers)


def _legacy(transport_session: str) -> list[SessionRequest]:
    headers = {
        **ACCEPT,
        "content-type": "application/json",
        "mcp-protocol-version": LEGACY_VERSION,
        "mcp-session-id": transport_session,
    }
    requests: tuple[tuple[str, JSON], ...] = (
        ("tools/call", {"name": "inc", "arguments": {"session_id": SESSION}}),
        ("tools/call", {"name": "session_info", "arguments": {"session_id": SESSION}}),
        ("resources/subscribe", {"uri": f"session://{SESSION}/state"}),
        ("resources/subscribe", {"uri": f"session://{SESSION}/asking/quick%3A%2F%2Fvalue"}),
        ("resources/unsubscribe", {"uri": f"session://{SESSION}/state"}),
    )
    return [
        SessionRequest(
            f"legacy {method} {params.get('name') or params['uri']}".replace(SESSION, "ID"),
            *("POST", "/mcp"),
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
            headers,
        )
        for method, params in requests
    ]


def _console(csrf: str) -> list[SessionRequest]:
    found: list[SessionRequest] = []
    for route in ROUTES:
        if "{session_id}" not in route.path:
            continue
        path = route.full_path.replace("{session_id}", SESSION).replace("{seq}", "1")
        path = re.sub(r"\{(?!session\})\w+\}", "x", path)
        body = None if route.body is None else json.dumps(BODIES.get(route.name, {}))
        headers = {"x-csrf-token": csrf, "content-type": "application/json"}
        title = f"{route.method} {route.full_path}"
        found.append(SessionRequest(title, route.method, path, body, headers))
    return found


__all__ = ["ACCEPT", "LEGACY_VERSION", "TOOLS", "SessionRequest", "session_requests"]
