"""`statehold sessions history` and `summary`: the stored history of a session, open in any process or in none."""

from __future__ import annotations

import json
import time
from typing import Any

from ....sessions.actions.history import cursor_before, position, show_in_session, summarize
from ....sessions.errors import InvalidArgument
from ....sessions.records import HistoryFilter, JournalKind, JournalRecord, SessionRecord
from ....sessions.store import SQLStore
from ...config.model import Config
from ...config.secrets import redactor_of
from ..command_line import CommandLine
from ..errors import CommandError
from ..exit_codes import OK
from ..nodes import LiveNodes
from ..output import ago, plain_lines, say, say_json, table

WIDTH = 100
"""Characters of a message that a line of the table shows."""


async def history(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Print a page of entries."""
    record = await _as_reported(config, store, record)
    last: int = min(arguments.last, 1000)
    wanted = HistoryFilter(
        before=_before(arguments.cursor),
        kinds=[JournalKind(kind) for kind in arguments.kind] if arguments.kind else None,
        tools=arguments.tool,
        statuses=arguments.status,
        runs=arguments.run,
        last_runs=arguments.last_runs,
        roles=arguments.role,
        skip_roles=arguments.skip_role,
        limit=last + 1,
    )
    found = await store.history(record.id, wanted)
    kept = found[-last:]
    cursor = cursor_before(kept[0].seq) if len(found) > last else None
    if arguments.json:
        entries = [show_in_session(entry, record, None) for entry in kept]
        say_json({"session_id": record.id, "entries": entries, "next_cursor": cursor})
        return OK
    if not kept:
        say("no such entries")
        return OK
    now = time.time()
    head = ("#", "WHEN", "WHAT", "RESULT", "TOOK", "RUN", "SAID")
    say(table(head, [_line(entry, record, now) for entry in kept]))
    if cursor is not None:
        say(f"... and older ones: --cursor {cursor}")
    return OK


def _before(cursor: str | None) -> int | None:
    try:
        return None if cursor is None else position(cursor)
    except InvalidArgument as error:
        raise CommandError.usage(f"--cursor: {error.message}") from None


def _line(entry: JournalRecord, record: SessionRecord, now: float) -> tuple[Any, ...]:
    found = show_in_session(entry, record, None)
    took = "" if "duration_ms" not in found else f"{found['duration_ms']:.0f} ms"
    status = found.get("status")
    text = " ".join(_text_of(found).split())
    text = text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
    return (
        entry.seq,
        ago(entry.started_at, now),
        _describe_entry(found),
        status,
        took,
        entry.run,
        text,
    )


def _describe_entry(found: dict[str, Any]) -> str:
    match found["kind"]:
        case "call":
            return f"{found.get('service')}: {found.get('tool')}"
        case "message":
            return str(found.get("role"))
        case "transition":
            return f"{found['transition'].get('code')} {found['transition'].get('event')}"
        case _:
            return "compacted"


def _text_of(found: dict[str, Any]) -> str:
    match found["kind"]:
        case "call":
            given = found.get("arguments")
            return str(found.get("error") or (_json(given) if given else ""))
        case "message":
            return str(found.get("content"))
        case "transition":
            return str(found["transition"].get("cause") or "")
        case _:
            return f"{found['compacted'].get('entries')} entries"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


async def _as_reported(config: Config, store: SQLStore, record: SessionRecord) -> SessionRecord:
    """Return a record with what the process that holds the session reports of it."""
    live = LiveNodes(config.data, await store.nodes())
    await live.ask([record.node])
    return live.merge_report(record)


async def summary(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Print the summary of a session."""
    found = await summarize(store, record, redactor_of(config.policy()))
    if arguments.json:
        say_json({"session_id": record.id, **found})
        return OK
    written = found["summary"]
    if written is not None:
        topics = f"\nTopics: {', '.join(written['topics'])}." if written["topics"] else ""
        since = f" ({written['entries_since']} entries ago)" if written["entries_since"] else ""
        say(plain_lines(f"{written['text']}{topics}\n-- written {written['updated_at']}{since}"))
        say("")
    say(plain_lines(found["digest"]["text"]))
    return OK
