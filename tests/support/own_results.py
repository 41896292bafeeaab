"""The classes of the results of Statehold's own tools; their list describes few of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from jsonschema import Draft202012Validator

from statehold.sessions.json_codec import JSON
from statehold.tools.definition import schema_of
from statehold.tools.own.admin_tools import DeletedSession, ExportedSession, ImportedSession
from statehold.tools.own.history_tools import SessionHistory, SessionSummary, WrittenEntry
from statehold.tools.own.results import (
    ForkResult,
    HistoryEntry,
    MergeResult,
    SessionInfo,
    StateValue,
)
from statehold.tools.own.session_tools import LISTED, ClosedSession, ListedSession, SessionPage
from statehold.tools.own.state_tools import StateVersion

_KINDS: dict[str, type[Any]] = {
    "session_list": SessionPage,
    "session_close": ClosedSession,
    "state_get": StateValue,
    "state_update": StateVersion,
    "session_history": SessionHistory,
    "session_note": WrittenEntry,
    "session_run": WrittenEntry,
    "session_summary": SessionSummary,
    "session_fork": ForkResult,
    "session_merge": MergeResult,
    "session_delete": DeletedSession,
    "session_export": ExportedSession,
    "session_import": ImportedSession,
}
_OPTIONAL = {
    "session_list": {each.name for each in fields(ListedSession)} - set(LISTED),
    "session_history": {each.name for each in fields(HistoryEntry)} - {"seq", "kind", "at"},
    "session_note": {each.name for each in fields(HistoryEntry)} - {"seq", "kind", "at"},
    "session_run": {each.name for each in fields(HistoryEntry)} - {"seq", "kind", "at"},
    "session_summary": {"problem"},
}
"""Members that a tool does not always send, or its client adds."""


def check_own_result(tool: str, content: JSON) -> None:
    """Fail unless the structured content of a tool has the form of its class, and all members that the server sends."""
    schema = schema_of(_KINDS.get(tool, SessionInfo), "serialization")
    _require_all(schema, _OPTIONAL.get(tool, {"notice"}))
    validator: Any = Draft202012Validator(schema)
    validator.validate(content)


def _require_all(schema: JSON, optional: set[str]) -> None:
    """Require also the members that the client could do without."""
    properties: JSON = schema.get("properties", {})
    if properties:
        schema["required"] = [name for name in properties if name not in optional]
    for inner in (*properties.values(), *schema.get("anyOf", ()), schema.get("items")):
        if isinstance(inner, dict):
            _require_all(cast("JSON", inner), optional)


__all__ = ["check_own_result"]
