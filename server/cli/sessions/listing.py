"""`statehold sessions list` and `show`: the stored sessions, as the processes that hold them report them."""

from __future__ import annotations

import json
import time
from typing import Any

from ....sessions.json_codec import JSON
from ....sessions.lifecycle import OPEN, Status
from ....sessions.records import LOCAL, JournalKind, JournalRecord, SessionFilter, SessionRecord
from ....sessions.store.sql import SQLStore
from ....sessions.views import describe, describe_binding, expiry, timestamp
from ...config.model import Config
from ...exit_codes import OK
from ..command_line import CommandLine
from ..nodes import LiveNodes
from ..output import ago, pairs, plain, say, say_json, span, table, until
from .filters import filter_fields
from .lookup import parse_owner, read_pages, show_owner


async def list_sessions(config: Config, store: SQLStore | None, arguments: CommandLine) -> int:
    """Print the sessions that fit the filter."""
    statuses = [Status(name) for name in arguments.status or ()]
    if not statuses and not arguments.all:
        statuses = [*OPEN, Status.CLOSING]
    if Status.ACTIVE in statuses:
        # Only the process that holds a session knows that it is active.
        statuses.append(Status.IDLE)
    session_filter = SessionFilter(
        owner=parse_owner(arguments.owner),
        statuses=sorted(set(statuses)) or None,
        **filter_fields(arguments),
    )
    records, more = (
        ([], False) if store is None else await read_pages(store, session_filter, arguments.limit)
    )
    live = LiveNodes(config.data, [] if store is None else await store.nodes())
    await live.ask(record.node for record in records)
    reported = [live.merge_report(record) for record in records]
    if arguments.status:
        reported = [record for record in reported if record.status.value in arguments.status]
    if arguments.json:
        closes_idle = config.on_idle == "close"
        entries = [_as_json(record, live, closes_idle=closes_idle) for record in reported]
        say_json({"sessions": entries, "more": more})
        return OK
    if not reported:
        say(f"no sessions in {config.data}")
        return OK
    say(_table(reported, live, closes_idle=config.on_idle == "close"))
    if more:
        say(f"... and more: --limit {arguments.limit * 10} shows them")
    return OK


def _as_json(record: SessionRecord, live: LiveNodes, *, closes_idle: bool) -> JSON:
    return {
        **describe(record, record.status, record.used_at, closes_idle=closes_idle),
        "owner": show_owner(record),
        "services": record.services,
        "open_in": live.describe_node(record.node),
    }


def _table(records: list[SessionRecord], live: LiveNodes, *, closes_idle: bool) -> str:
    now = time.time()
    head = ("ID", "NAME", "STATUS", "SERVICES", "USED", "ENDS", "OPEN IN", "OWNER", "NAMESPACE")
    return table(
        head,
        [
            (
                record.id,
                record.name,
                _status(record, now),
                ", ".join(record.services),
                ago(record.used_at, now),
                until(_ends_at(record, closes_idle=closes_idle), now),
                live.describe_node(record.node),
                "" if record.owner == LOCAL.key else show_owner(record),
                record.namespace,
            )
            for record in records
        ],
    )


def _status(record: SessionRecord, now: float) -> str:
    # A call does not store its changes of the status.
    idle = record.status is Status.IDLE
    since = max(record.status_at, record.used_at) if idle else record.status_at
    text = f"{record.status.value} for {span(now - since)}"
    return f"{text} ({record.reason})" if record.reason else text


def _ends_at(record: SessionRecord, *, closes_idle: bool) -> float | None:
    if record.status is Status.CLOSED:
        return record.due_at
    return expiry(record, record.status, record.used_at, closes_idle=closes_idle)


async def show_session(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Print one session with its services, the end of its journal, and the stderr of its programs."""
    closes_idle = config.on_idle == "close"
    live = LiveNodes(config.data, await store.nodes())
    await live.ask([record.node])
    record = live.merge_report(record)
    entries = await store.journal(record.id, last=arguments.last)
    bindings = live.bindings(record.id)
    if bindings is None:
        bindings = [describe_binding(binding) for binding in await store.bindings(record.id)]
    stderr = await live.stderr(record)
    state = await store.state(record.id)
    if arguments.json:
        document = {
            **_as_json(record, live, closes_idle=closes_idle),
            "services": bindings,
            "state_version": state.version if state else 0,
            "journal": [_entry_as_json(entry) for entry in entries],
            "stderr": stderr,
        }
        say_json(document)
        return OK
    now = time.time()
    say(pairs(_details(record, live, now, closes_idle=closes_idle)))
    if bindings:
        head = ("SERVICE", "STATUS", "GENERATION", "LAST ERROR")
        keys = ("service", "status", "generation", "last_error")
        say("\n" + table(head, [[binding[key] for key in keys] for binding in bindings]))
    if entries:
        say("\n" + _journal(entries, now))
    for service, text in stderr.items():
        lines = "\n".join(f"  {plain(line)}" for line in text.splitlines())
        say(f"\nstderr of {service}:\n{lines}")
    return OK


def _entry_as_json(entry: JournalRecord) -> JSON:
    times = {"started_at": timestamp(entry.started_at), "ended_at": timestamp(entry.ended_at)}
    return {**entry.model_dump(mode="json"), **times}


def _details(
    record: SessionRecord, live: LiveNodes, now: float, *, closes_idle: bool
) -> list[tuple[str, Any]]:
    times = record.timeouts
    clocks = (("idle", times.idle), ("paused", times.paused), ("lifetime", times.lifetime))
    return [
        ("id", record.id),
        ("name", record.name),
        ("owner", show_owner(record)),
        ("namespace", record.namespace),
        ("status", _status(record, now)),
        ("open in", live.describe_node(record.node)),
        ("created", ago(record.created_at, now)),
        ("used", ago(record.used_at, now)),
        (
            "purged" if record.status is Status.CLOSED else "ends",
            until(_ends_at(record, closes_idle=closes_idle), now),
        ),
        ("clocks", ", ".join(f"{name} {span(s) if s else 'never'}" for name, s in clocks)),
        ("parent", record.parent),
        *((label.removesuffix("_id"), value) for label, value in record.labels.items()),
        ("metadata", json.dumps(record.metadata, ensure_ascii=False) if record.metadata else None),
    ]


def _journal(entries: list[JournalRecord], now: float) -> str:
    return table(
        ("#", "WHEN", "WHAT", "RESULT", "TOOK"),
        [
            (
                entry.seq,
                ago(entry.started_at, now),
                _describe_entry(entry),
                entry.status,
                ""
                if entry.ended_at is None or entry.kind is not JournalKind.CALL
                else f"{(entry.ended_at - entry.started_at) * 1000:.0f} ms",
            )
            for entry in entries
        ],
    )


def _describe_entry(entry: JournalRecord) -> str:
    if entry.kind is JournalKind.CALL:
        return f"{entry.service}: {entry.tool}"
    if entry.kind is JournalKind.TRANSITION:
        request: JSON = entry.request or {}
        cause = f" ({request['cause']})" if request.get("cause") else ""
        return f"{str(request.get('event')).replace('_', ' ')}{cause}"
    return entry.kind.value


__all__ = ["list_sessions", "show_session"]
