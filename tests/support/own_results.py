"""The models of the results of Statehold's own tools; their list describes few of them."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from pydantic import BaseModel

from statehold.sessions.json_codec import JSON
from statehold.tools.definition import schema_of
from statehold.tools.own.admin import DeleteResult, ExportResult, ImportResult
from statehold.tools.own.branches import ForkResult, MergeResult
from statehold.tools.own.history import HistoryResult, NoteResult, RunResult, SummaryResult
from statehold.tools.own.sessions import CloseResult, ListResult, SessionInfo
from statehold.tools.own.state import GetResult, UpdateResult

_MODELS: dict[str, type[BaseModel]] = {
    "session_list": ListResult,
    "session_close": CloseResult,
    "state_get": GetResult,
    "state_update": UpdateResult,
    "session_history": HistoryResult,
    "session_note": NoteResult,
    "session_run": RunResult,
    "session_summary": SummaryResult,
    "session_fork": ForkResult,
    "session_merge": MergeResult,
    "session_delete": DeleteResult,
    "session_export": ExportResult,
    "session_import": ImportResult,
}


def check_own_result(tool: str, content: JSON) -> None:
    """Fail unless the structured content of a tool has the form of its model."""
    schema = schema_of(_MODELS.get(tool, SessionInfo), "serialization")
    validator: Any = Draft202012Validator(schema)
    validator.validate(content)


__all__ = ["check_own_result"]
