"""The checklist of what session systems of the field promise: each row has a test that carries its id, or a reason.

A row is shown by a test whose docstring, or the id of whose parameters, names it. `AM` are rows of agno's MCP sessions, `AS`
of its session objects, `AG` of Agno-Go's session state, `SC` of agentscope's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROWS = {
    "AG-01": "State shared across steps without coupling outputs",
    "AG-03": "Deep copy for parallel branches",
    "AG-04": "Automatic merge after parallel execution",
    "AG-05": "Any value type (interface{})",
    "AG-06": "NewExecutionContextWithSession(input, sessionID, userID)",
    "AG-07": "SetSessionState(key, value) convenience",
    "AG-08": "GetSessionState(key) -> (value, ok)",
    "AG-09": "Use in a workflow: step1 saves, step2 reads and saves",
    "AG-10": "Missing dependency gives a clear error",
    "AG-11": "Conflict problem: branches write the same key",
    "AG-12": "Rule 1: each branch gets its own copy",
    "AG-13": "Rule 2: branches run independently",
    "AG-14": "Rule 3: merge in order",
    "AG-15": "Rule 4: later branch overwrites on conflict (last write wins)",
    "AG-16": "Merge code copies only what a branch changed",
    "AG-17": "deletions in a branch",
    "AG-18": "nested maps",
    "AG-19": "empty base",
    "AG-20": "Example: 3 branches, counter plus own result keys",
    "AG-21": "NewSessionState()",
    "AG-22": "Set",
    "AG-23": "Get returns value and existence",
    "AG-24": "Clone(); non-serialisable falls back to shallow copy",
    "AG-25": "GetAll() returns a copy",
    "AG-26": "MergeFrom(other)",
    "AG-27": "Clear()",
    "AG-28": "ExecutionContext fields Input, Output, Data, Metadata, SessionState, SessionID, UserID (JSON",
    "AG-29": "Type-safe access helper",
    "AG-30": "Structured values",
    "AG-31": "Nested values",
    "AG-32": "Session isolation A/B",
    "AG-33": "Best practice: no large data, store ids",
    "AG-34": "Best practice: read, modify, set again ('lost change' example)",
    "AG-35": "Best practice: branches use different keys",
    "AG-39": "Trouble: SessionState nil -> panic",
    "AG-40": "Trouble: type assertion panic",
    "AG-43": "Multi-tenant isolation",
    "AG-45": "1000 concurrent goroutines safe",
    "AG-47": "session storage CRUD, filters, deep copies, context cancel",
    "AG-48": "FIFO eviction at maxSize",
    "AM-01": "A session id keeps context across several tool calls",
    "AM-02": "Each session has one unique id (UUID)",
    "AM-03": "Lifecycle through async context manager, guaranteed init and cleanup",
    "AM-04": "Creation step 1: create the session",
    "AM-05": "Creation step 2: validate configuration",
    "AM-06": "Creation step 3: establish connection",
    "AM-07": "Connect success -> running",
    "AM-08": "Connect failure -> closed",
    "AM-09": "Explicit close -> closed",
    "AM-10": "Abnormal termination -> closed",
    "AM-11": "Session timeout -> paused",
    "AM-12": "Paused -> running (reactivate)",
    "AM-13": "Paused -> closed by timeout cleanup",
    "AM-14": "Running loop: handle request -> update state -> persist",
    "AM-15": "Closing: release resources, then clear context",
    "AM-16": "Call carries the session id",
    "AM-17": "Manager fetches session by id",
    "AM-18": "Store is queried for state",
    "AM-19": "Context is provided to the tool",
    "AM-20": "State update after execution, persisted, confirmed",
    "AM-21": "Result returns the session id",
    "AM-22": "Client: start, make id, init, configure, connect, call, verify, end",
    "AM-23": "Add session state to model context",
    "AM-24": "Configurable timeouts",
    "AM-25": "Timeout handling: detect, cleanup, close, release, mark closed",
    "AM-26": "Exception handling: catch, exception cleanup, close",
    "AM-27": "Workflow steps share state: init, step adds, step lists, step clears",
    "AM-28": "State Idle and create_session()",
    "AM-29": "Active -> Paused: timeout",
    "AM-30": "Active -> Idle: close_session()",
    "AM-31": "Active -> Error: exception",
    "AM-32": "Paused -> Active: resume_session()",
    "AM-33": "Paused -> Idle: cleanup_timeout_session()",
    "AM-34": "Error -> Active: recover_from_error()",
    "AM-35": "Error -> Idle: force_close()",
    "AM-36": "Active sub-states Processing and Updating",
    "AM-37": "Error: Logging first",
    "AM-38": "Logging -> Recovery / Cleanup decision",
    "AM-39": "Recovery successful -> Active, failed -> Cleanup",
    "AM-40": "Best practice: unique ids by UUID",
    "AM-41": "Best practice: initialise state explicitly at creation",
    "AM-42": "Best practice: release everything on close",
    "AM-43": "Best practice: robust exception handling and recovery",
    "AM-44": "Best practice: choose a storage backend",
    "AM-45": "Best practice: timeouts by scenario",
    "AM-46": "include/exclude tools, name prefix",
    "AM-49": "confirmation before a tool runs",
    "AM-50": "AgentOS MCP server: get_sessions, get_session_runs read-only, paginated, per-user scope",
    "AS-01": "Session object wraps history, persistent state, metadata",
    "AS-02": "Three kinds: agent, team, workflow, one union type",
    "AS-03": "session_id unique, for tracking and restore",
    "AS-04": "agent_id / team_id / workflow_id of the owner entity",
    "AS-05": "user_id of a session",
    "AS-06": "session_data: name, state, media",
    "AS-07": "metadata of a session",
    "AS-09": "runs: all of them, at a cost that does not grow",
    "AS-10": "summary of a session",
    "AS-11": "created_at, updated_at unix seconds",
    "AS-12": "to_dict()",
    "AS-13": "from_dict()",
    "AS-14": "upsert_run(run) by run_id",
    "AS-15": "get_run(run_id)",
    "AS-16": "get_messages_from_last_n_runs(...)",
    "AS-17": "get_tool_calls(num_calls)",
    "AS-19": "get_session_summary()",
    "AS-21": "WorkflowSession __post_init__ defaults: runs=[], dicts, timestamps; workflow_name",
    "AS-22": "SessionSummary: summary, topics?, updated_at?",
    "AS-23": "Session created automatically at first interaction with a new id",
    "AS-24": "Restore by passing an existing session_id",
    "AS-25": "Restore includes history, state, metadata",
    "AS-26": "Rename",
    "AS-27": "Persistence survives application restart",
    "AS-31": "Flow: input, check id, load, run, update, save",
    "AS-32": "Persist after every interaction",
    "AS-33": "State holds any JSON-serialisable data",
    "AS-34": "Read state at run time",
    "AS-35": "Strategy overwrite (replace all)",
    "AS-36": "Strategy incremental (named fields only)",
    "AS-37": "Strategy conditional",
    "AS-38": "Summary generation flow (8 steps)",
    "AS-39": "Dedicated summary model, structured output",
    "AS-40": "Custom summary prompt",
    "AS-41": "Content: concise, no invention; topics list; time",
    "AS-42": "Trigger: length",
    "AS-43": "Trigger: interval",
    "AS-44": "Trigger: manual",
    "AS-45": "Trigger: at session end",
    "AS-46": "RunOutput: run_id, messages, status, metrics?, parent_run_id?",
    "AS-47": "Nested runs via parent_run_id",
    "AS-48": "last_n (default all)",
    "AS-49": "skip_role",
    "AS-50": "skip_status",
    "AS-51": "skip_history_messages / from_history flag",
    "AS-52": "Full chat history",
    "AS-53": "Truncation by count or time",
    "AS-54": "Tool call history",
    "AS-55": "Stages: create, active, inactive, expired, cleaned",
    "AS-56": "ttl: 86400 (24 h)",
    "AS-57": "cleanup_interval: 3600",
    "AS-58": "max_inactive_days: 30",
    "AS-59": "Cleanup job: find expired, delete, log statistics",
    "AS-60": "Get all sessions",
    "AS-61": "Filter by user",
    "AS-62": "Recent sessions limit=5",
    "AS-63": "Delete one",
    "AS-65": "Access data, history, summary at run time",
    "AS-66": "Modify at run time, bump updated_at, save",
    "AS-67": "Optimistic lock by version or timestamp",
    "AS-68": "Transactions",
    "AS-69": "Cache to reduce DB reads",
    "AS-70": "Conflict retry: max 3, wait 0.1*(attempt+1) s, last attempt raises SessionConflictError",
    "AS-71": "safe_update returns False when the session does not exist",
    "AS-72": "Id unique, constant for the session's life",
    "AS-75": "search past sessions (previews)",
    "AS-76": "session metrics (tokens, time)",
    "AS-77": "bulk delete with types, 400 on length mismatch; 404s; 422 invalid type",
    "SC-01": "Interface plus several implementations (SessionBase)",
    "SC-02": "save_session_state(session_id, modules) async",
    "SC-03": "load_session_state(session_id, allow_not_exist, modules) async",
    "SC-04": "JSONSession: directory, one file per id",
    "SC-05": "constructor session_id deprecated",
    "SC-06": "save: collect each module's state_dict, merge, UTF-8 JSON",
    "SC-07": "load: path from id, read, load each module",
    "SC-08": "allow_not_exist False -> error",
    "SC-09": "allow_not_exist True -> skip with log",
    "SC-10": "StateModule nested modules collected automatically",
    "SC-11": "register_state(attr, custom_to_json, custom_from_json)",
    "SC-12": "without converter the attribute must be JSON",
    "SC-13": "state_dict()",
    "SC-14": "load_state_dict(state, strict=True) missing key -> KeyError",
    "SC-15": "strict=False skips missing",
    "SC-16": "order: modules first, then attributes",
    "SC-17": "registering a module name as attribute is refused",
    "SC-18": "SqliteSession(sqlite_path)",
    "SC-19": "save: create table if needed, INSERT ... ON CONFLICT(session_id) DO UPDATE",
    "SC-20": "schema: session_id PK, session_data JSON, created_at, updated_at",
    "SC-21": "load: check db file, table, row; each with allow_not_exist",
    "SC-22": "JSONSession silently ignores a missing module; Sqlite raises",
    "SC-23": "timestamps for audit and expiry",
    "SC-25": "several modules saved together",
    "SC-26": "perf: batch saves",
    "SC-27": "perf: async writes",
    "SC-28": "perf: directory exists and writable",
    "SC-29": "perf: primary key avoids duplicates",
    "SC-30": "perf: index on session_id",
    "SC-31": "perf: connection reuse and transaction batching",
    "SC-36": "trouble: file missing; check id, folder, rights",
    "SC-37": "trouble: bad JSON -> repair or delete",
    "SC-38": "trouble: module missing in data",
    "SC-39": "trouble: db or table missing -> created on first run",
    "SC-40": "trouble: strict error -> relax or complete",
    "SC-41": "lifecycle: create, load, update, clean",
    "SC-42": "security: restrict file/db permissions",
    "SC-43": "security: mask sensitive attributes by custom serialiser",
    "SC-44": "expiry by updated_at, periodic",
    "SC-45": "expiry queue in the application",
    "SC-46": "concurrency SQLite: transactions + upsert",
    "SC-47": "concurrency files: lock or retry",
    "SC-48": "monitoring: logs on save, load, skip",
    "SC-49": "audit: active sessions and frequency from timestamps",
    "SC-50": "diagnosis: id right? store there? modules complete?",
    "SC-52": "status running or idle; delete cancels a running session, waits, then deletes",
}
"""Every row that is to be there, by the name that its system has for it."""

DIFFERENT = {
    "AG-05": "JSON values only: anything else is refused with its place",
    "AG-26": "the tool session_merge, instead of a method of an object",
    "AM-02": "the server mints it, 130 random bits behind a prefix: no UUID, and not the client's",
    "AM-19": "a server behind a session gets no session id; there are no hooks in Python",
    "AM-30": "a closed session is closed, not idle",
    "AM-33": "no command: every process that runs closes what is due",
    "AM-40": "as AM-02",
    "AM-44": "SQLite, memory, PostgreSQL and MariaDB; no folder of JSON files",
    "AS-02": "one kind of session, with agent_id, team_id and workflow_id for finding it",
    "AS-05": "the owner is who is authenticated; user_id is for finding, and gives no right",
    "AS-06": "files are resources of the session; its state has at most 1 MiB",
    "AS-23": "an unknown id is an error; only a pinned name makes its session",
    "AS-24": "an unknown id is an error, never an empty session",
    "AS-26": "no name is made by a model",
    "AS-38": "a digest without a model; a host writes its own with session_summary",
    "AS-39": "as AS-38",
    "AS-40": "as AS-38: a host has a prompt of its own",
    "AS-57": "the next deadline is waited for, there is no interval",
    "AS-59": "as AM-33; what happened is in the journal of each session",
    "AS-69": "several processes may share a data folder: each session is open in one of them",
    "AS-70": "trying again is the caller's: state_conflict names both versions",
    "AS-76": "calls by tool and outcome, in the digest; nobody tells a server of tokens",
    "AS-77": "a tool deletes one; the command deletes several and tells of each",
    "SC-01": "one implementation for every database, under one suite; the types say what a store is",
    "SC-03": "what is not there is always an error",
    "SC-06": "a write of a database is whole or not there",
    "SC-07": "as SC-06; a name is never a part of a path",
    "SC-11": "what a state may hold is checked with each update; there are no converters",
    "SC-26": 'the journal is at most 50 ms late, with journal = "sync" not at all',
    "SC-37": "one database: damage is told, and nothing is written over it",
    "SC-47": "as AS-69",
    "SC-49": "server_stats counts by status, a history says how often; queries of one's own are not promised",
}
"""Rows that are shown otherwise than their system has them, each with the reason."""

ABSENT = {
    "AM-03": "not there yet: it is of the Python client, which comes later; what a session holds is released by closing it",
    "AM-45": "each time is a setting of its own, documented and tested; sets of them under a name would hide what they are",
    "AM-49": "clients ask their users before a tool runs, by its annotations; what a server itself asks passes through",
    "AS-42": "the digest is made when it is asked for and never out of date, so nothing has to trigger it",
    "AS-43": "as AS-42: nothing is made in intervals",
    "AS-47": "a server sees calls, not what called what; calls that belong together carry a run id",
    "SC-04": "one database instead of a file per session: a write is whole or not there; SC-42 has its permissions",
    "SC-05": "an argument that its own project had given up",
    "SC-09": "a session that is not there is always an error: a caller that wants a default catches it",
    "SC-10": "a state is JSON, not Python objects: there is nothing to collect from them",
    "SC-16": "as SC-10: there is no order of modules and attributes",
    "SC-17": "as SC-10: there are no names of modules to collide with",
}
"""Rows that no test shows, each with the reason why it is otherwise here."""

_FOLDER = Path(__file__).parent
_ID = r"(A[MSG]|SC)-(\d\d)"


def _named(text: str) -> Iterator[str]:
    """Yield the rows that a text names, those between `AG-12 to AG-18` too."""
    for group, first, other, last in re.findall(rf"{_ID}(?: to {_ID})?", text):
        if other not in ("", group):
            raise AssertionError(f"{group}-{first} to {other}-{last} is no range")
        for number in range(int(first), int(last or first) + 1):
            yield f"{group}-{number:02}"


def _texts(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    yield ast.get_docstring(test) or ""
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@cache
def _shown() -> dict[str, list[str]]:
    """Return the tests that carry each id."""
    found: dict[str, list[str]] = {}
    for path in sorted(_FOLDER.rglob("test_*.py")):
        if {".venv", "node_modules"} & set(path.parts):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if re.search(_ID, text) else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_"):
                for row in {row for text in _texts(node) for row in _named(text)}:
                    found.setdefault(row, []).append(f"{path.relative_to(_FOLDER)}::{node.name}")
    return found


def test_every_row_has_a_test_or_a_reason() -> None:
    shown = _shown()
    assert {row: ROWS[row] for row in ROWS if row not in shown and row not in ABSENT} == {}


def test_reasons_are_given_for_rows_of_the_table() -> None:
    shown = _shown()
    assert {row: shown[row] for row in ABSENT if row in shown} == {}
    assert set(DIFFERENT) <= set(shown)
    assert {*DIFFERENT, *ABSENT} <= set(ROWS)


def test_ranges_of_ids_are_read() -> None:
    assert [*_named("AG-12 to AG-14, SC-01.")] == ["AG-12", "AG-13", "AG-14", "SC-01"]
