"""Records the requests of MCP clients: one entry when a request is admitted, and one when it has ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.context import ServerRequestContext

from ...sessions.journal.redaction import Redactor
from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ..claims import VerifiedCaller
from .recorder import Actor, Audit, OpenRequest

UNRECORDED: Final = frozenset(
    {
        "initialize",
        "server/discover",
        "ping",
        "logging/setLevel",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "skills/list",
        "skills/get",
    }
)
"""Requests that read no session and run nothing."""
POLLS: Final = frozenset({"tasks/get", "events/poll"})
"""Requests that clients send again and again; see Audit.admit_read()."""
ARGUMENT_BYTES: Final = 4096
_MAX_DELEGATIONS: Final = 8
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class RequestAudit:
    """Records the requests that this process gets from clients; those that other nodes forward are recorded there.

    `redactor` is that of the journal; with it, entries have the arguments of their requests.
    """

    def __init__(self, audit: Audit, redactor: Redactor | None = None) -> None:
        self._audit = audit
        self._redactor = redactor

    async def admit(
        self, ctx: ServerRequestContext[Any, Any], principal: Principal, session: object
    ) -> OpenRequest | None:
        """Record a request that is about to run; `session` is what it names. Return None for one whose end is not recorded.

        Raises:
            StoreUnavailable: the log is required and could not be written; the request must not run.
        """
        scope: Mapping[str, Any] = {} if ctx.request is None else ctx.request.scope
        if ctx.method in UNRECORDED:
            return None
        params = dict(ctx.params or {})
        client = scope.get("client")
        tool = params.get("name") if ctx.method in ("tools/call", "prompts/get") else None
        transport = "http" if scope.get("type") == "http" else "stdio"
        address = client[0] if client else None
        actor = Actor(principal=principal, transport=transport, address=address)
        if ctx.method.startswith("events/") and isinstance(params.get("arguments"), dict):
            session = session or params["arguments"].get("sessionId")
        session_id = _session(session or params.get("uri"))
        if ctx.method in POLLS:
            await self._audit.admit_read(actor, ctx.method, session_id)
            return None
        return await self._audit.admit(
            actor,
            ctx.method,
            session_id,
            on_behalf=_delegations(),
            tool=None if tool is None else str(tool)[:128],
            trace_id=_trace_id(ctx, params),
            arguments=self._arguments(params),
        )

    def _arguments(self, params: JSON) -> JSON | None:
        arguments: object = params.get("arguments")
        if self._redactor is None or not isinstance(arguments, dict):
            return None
        members = cast("JSON", arguments)
        value = self._redactor.value(members, ARGUMENT_BYTES, room=ARGUMENT_BYTES)
        return cast("JSON", value)


def _session(session: object) -> str | None:
    return session[:256] if isinstance(session, str) else None


def _delegations() -> tuple[str, ...]:
    """Return the actors of the caller's token (RFC 8693 4.1), the nearest first."""
    user = auth_context_var.get()
    claims: object = user.act if isinstance(user, VerifiedCaller) else None
    actors: list[str] = []
    while isinstance(claims, dict) and len(actors) < _MAX_DELEGATIONS:
        actor = cast("JSON", claims)
        actors.append(f"{actor.get('iss', '')} {actor.get('sub', '')}".strip()[:256])
        claims = actor.get("act")
    return tuple(actors)


def _trace_id(ctx: ServerRequestContext[Any, Any], params: JSON) -> str | None:
    """Return the trace of a request: that of its `_meta` (SEP-414), else that of the HTTP header."""
    meta: object = params.get("_meta")
    parent: object = cast("JSON", meta).get("traceparent") if isinstance(meta, dict) else None
    if parent is None and ctx.request is not None:
        headers: list[tuple[bytes, bytes]] = ctx.request.scope.get("headers") or []
        parent = dict(headers).get(b"traceparent", b"").decode("latin-1")
    match = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    return None if match is None else match[1]
