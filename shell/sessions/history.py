"""`statehold sessions history` and `summary`: read the stored history of a session, also while a process holds it."""

from __future__ import annotations

import json
import time
from typing import Any

from ...server.config.model import Config
from ...server.config.variables import redactor_of
from ...server.exit_codes import OK
from ...server.operate.nodes import LiveNodes
from ...sessions.actions.history import cursor_before, position, show_in_session, summarize
from ...sessions.errors import InvalidArgument
from ...sessions.records import HistoryFilter, JournalKind, JournalRecord, SessionRecord
from ...sessions.store.sql import SQLStore
from ...sessions.times import ago
from ..output import CommandError, plain_lines, say, say_json, table
from ..parser import CommandLine

WIDTH = 100
"""Characters of a message that a line of the table shows."""


async def show_history(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Print a page of entries."""
    record = await _merge_report(config, store, record)
    last: int = min(arguments.last, 1000)
    history_filter = HistoryFilter(
        before=_parse_cursor(arguments.cursor),
        kinds=[JournalKind(kind) for kind in arguments.kind] if arguments.kind else None,
        tools=arguments.tool,
        statuses=arguments.status,
        runs=arguments.run,
        last_runs=arguments.last_runs,
        roles=arguments.role,
        skip_roles=arguments.skip_role,
        limit=last + 1,
    )
    entries = await store.history(record.id, history_filter)
    page = entries[-last:]
    cursor = cursor_before(page[0].seq) if len(entries) > last else None
    if arguments.json:
        documents = [_show_with_facts(entry, record) for entry in page]
        say_json({"session_id": record.id, "entries": documents, "next_cursor": cursor})
        return OK
    if not page:
        say("no such entries")
        return OK
    now = time.time()
    head = ("#", "WHEN", "WHAT", "RESULT", "TOOK", "RUN", "SAID")
    say(table(head, [_format_entry(entry, record, now) for entry in page]))
    if cursor is not None:
        say(f"... and older ones: --cursor {cursor}")
    return OK


def _show_with_facts(entry: JournalRecord, record: SessionRecord) -> dict[str, Any]:
    facts = {} if entry.facts is None else {"facts": entry.facts}
    return show_in_session(entry, record, None) | facts


def _parse_cursor(cursor: str | None) -> int | None:
    try:
        return None if cursor is None else position(cursor)
    except InvalidArgument as error:
        raise CommandError.usage(f"--cursor: {error.message}") from None


def _format_entry(entry: JournalRecord, record: SessionRecord, now: float) -> tuple[Any, ...]:
    document = show_in_session(entry, record, None)
    took = "" if "duration_ms" not in document else f"{document['duration_ms']:.0f} ms"
    status = document.get("status")
    text = " ".join(_text_of(document).split())
    text = text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
    return (
        entry.seq,
        ago(entry.started_at, now),
        _describe_entry(document),
        status,
        took,
        entry.run,
        text,
    )


def _describe_entry(document: dict[str, Any]) -> str:
    match document["kind"]:
        case "call":
            return f"{document.get('service')}: {document.get('tool')}"
        case "message":
            return str(document.get("role"))
        case "state" | "run":
            return str(document.get("tool") or "run")
        case "transition":
            return f"{document['transition'].get('code')} {document['transition'].get('event')}"
        case "control":
            return f"control: {document.get('status')}"
        case _:
            return "compacted"


def _text_of(document: dict[str, Any]) -> str:
    match document["kind"]:
        case "call" | "state" | "run":
            arguments = document.get("arguments")
            return str(document.get("error") or (_json(arguments) if arguments else ""))
        case "message":
            return str(document.get("content"))
        case "transition":
            return str(document["transition"].get("cause") or "")
        case "control":
            control = document["control"]
            return str(control.get("reply") or control.get("reason") or control.get("holder") or "")
        case _:
            return f"{document['compacted'].get('entries')} entries"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


async def _merge_report(config: Config, store: SQLStore, record: SessionRecord) -> SessionRecord:
    """Return the record, updated with the report of the process that holds the session, if any."""
    live = LiveNodes(config.data, await store.nodes())
    await live.ask([record.node])
    return live.merge_report(record)


async def show_summary(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Print the summary of a session."""
    summaries = await summarize(store, record, redactor_of(config.policy()))
    if arguments.json:
        say_json({"session_id": record.id, **summaries})
        return OK
    written_summary = summaries["summary"]
    if written_summary is not None:
        topics = (
            f"\nTopics: {', '.join(written_summary['topics'])}."
            if written_summary["topics"]
            else ""
        )
        since = (
            f" ({written_summary['entries_since']} entries ago)"
            if written_summary["entries_since"]
            else ""
        )
        say(
            plain_lines(
                f"{written_summary['text']}{topics}\n-- written {written_summary['updated_at']}{since}"
            )
        )
        say("")
    say(plain_lines(summaries["digest"]["text"]))
    return OK
