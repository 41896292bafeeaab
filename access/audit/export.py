"""Entries of the audit log as documents: as they are, or in the Open Cybersecurity Schema Framework (OCSF) 1.3."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final, Literal, Protocol, cast

import orjson

from ...sessions.json_codec import JSON
from ...sessions.principals.audit_log import AuditHead, AuditRow

ExportFormat = Literal["jsonl", "ocsf"]
PAGE: Final = 2000

_API_ACTIVITY, _AUTHENTICATION = 6003, 3002
_OTHER, _LOGON, _LOGOFF = 99, 1, 2


class AuditReader(Protocol):
    """The part of a store from which the log is read."""

    async def audit_page(self, after: int, limit: int) -> Any: ...

    async def audit_head(self) -> AuditHead: ...


async def read_rows(
    store: AuditReader, after: int = 0, *, until: int | None = None
) -> AsyncGenerator[list[AuditRow]]:
    """Yield pages of the entries after a position, the oldest first, up to and with the position `until`."""
    while True:
        rows: list[AuditRow] = list(await store.audit_page(after, PAGE))
        page = [row for row in rows if until is None or row.seq <= until]
        if not page:
            return
        yield page
        after = page[-1].seq


def members_of(row: AuditRow) -> JSON:
    """Return the members of an entry with its position and hash."""
    try:
        members: object = orjson.loads(row.document)
    except orjson.JSONDecodeError:
        members = {"unreadable": row.document}
    known = cast("JSON", members) if isinstance(members, dict) else {"unreadable": row.document}
    return {"seq": row.seq, **known, "hash": row.hash}


def export_line(row: AuditRow, export_format: ExportFormat) -> str:
    """Return the line of an entry."""
    members = members_of(row)
    return orjson.dumps(members if export_format == "jsonl" else _ocsf(members)).decode()


def _ocsf(members: JSON) -> JSON:
    name = str(members.get("operation", ""))
    is_of_service = name.startswith("login.")
    is_login = members.get("event") == "login" and not is_of_service
    class_uid = _AUTHENTICATION if is_login else _API_ACTIVITY
    activity = (_LOGOFF if members.get("operation") == "logout" else _LOGON) if is_login else _OTHER
    outcome = members.get("outcome")
    is_failure = members.get("decision") == "deny" or outcome not in (None, "ok", "still_running")
    user = {
        "uid": members.get("subject", ""),
        "name": members.get("actor_name") or members.get("subject", ""),
        "domain": members.get("issuer", ""),
    }
    operation = str((not is_of_service and members.get("tool")) or name)
    event: JSON = {
        "activity_id": activity,
        "category_uid": class_uid // 1000,
        "class_uid": class_uid,
        "type_uid": class_uid * 100 + activity,
        "severity_id": 1,
        "time": round(float(members.get("at", 0)) * 1000),
        "status_id": 2 if is_failure else 1,
        "status_code": outcome or members.get("decision", ""),
        "metadata": {
            "version": "1.3.0",
            "product": {"name": "Statehold", "vendor_name": "Statehold"},
            "uid": members["hash"],
            "sequence": members["seq"],
            "correlation_uid": members.get("trace_id") or members.get("call") or "",
        },
        "actor": {"user": user, "app_uid": members.get("client_id", "")},
        "src_endpoint": {
            "ip": members.get("address") or "127.0.0.1",
            "name": members.get("transport", ""),
        },
        "unmapped": {
            "mcp_method": members.get("operation", ""),
            "mcp_name": members.get("tool", ""),
            "event": members.get("event", ""),
            "delegation_path": members.get("on_behalf", []),
            "node": members.get("node", ""),
            "arguments": members.get("arguments"),
        },
    }
    if is_login:
        return {**event, "user": user, "service": {"name": "Statehold console"}}
    resources = (
        [{"uid": members["session_id"], "type": "session"}] if "session_id" in members else []
    )
    return {
        **event,
        "api": {"operation": operation, "service": {"name": "Statehold"}},
        "duration": members.get("duration_ms"),
        "resources": resources,
    }
