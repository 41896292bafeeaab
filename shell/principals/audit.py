"""`statehold audit tail`, `export` and `verify`: read the audit log, also while processes write it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import anyio

from ...access.audit.export import export_line, members_of, read_rows
from ...server.config.model import Config
from ...server.exit_codes import FAILURE, OK
from ...server.gateway.stores import may_exist, store_of
from ...server.printing import complain, write_json_text
from ...sessions.json_codec import JSON
from ...sessions.principals.audit_log import AuditEvent, AuditHead, AuditRow, ChainCheck
from ...sessions.store.sql import SQLStore
from ...sessions.times import timestamp
from ..output import CommandError, say, say_json, table
from ..parser import CommandLine

FOLLOW_SECONDS: Final = 0.5
_OF_RESULT: Final = ("decision", "outcome", "duration_ms")
"""The members of a result that its request does not have, or that a result decides."""
_HEAD: Final = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
_COLUMNS: Final = ("#", "WHEN", "WHO", "WHAT", "SESSION", "DECISION", "END", "TIME", "FROM")


def run(config: Config, arguments: CommandLine) -> int:
    """Run one of the commands, and return the exit code."""
    if config.ephemeral or not may_exist(config):
        return complain("there is no audit log: nothing is stored yet", FAILURE)
    return anyio.run(_run, config, arguments)


async def _run(config: Config, arguments: CommandLine) -> int:
    try:
        async with store_of(config) as store:
            await _require_log(config, store)
            match arguments.action:
                case "tail":
                    return await _tail(store, arguments)
                case "export":
                    return await _export(store, arguments)
                case _:
                    return await _verify(store, arguments)
    except CommandError as error:
        return complain(str(error), error.exit_code)


async def _require_log(config: Config, store: SQLStore) -> None:
    """Raise CommandError if there is no audit log: none that is read in the wrong folder is an empty one."""
    if config.audit == "off" and (await store.audit_head()).seq == 0:
        raise CommandError(
            "no_audit_log",
            f'there is no audit log in {config.data}: audit is off. audit = "on" begins one; a log elsewhere needs --config',
        )


async def _tail(store: SQLStore, arguments: CommandLine) -> int:
    head = await store.audit_head()
    last = int(arguments.last)
    # A line of a call has two entries.
    after = max(0, head.seq - (last if arguments.json or arguments.follow else 2 * last))
    if not arguments.follow:
        rows = [row async for page in read_rows(store, after, until=head.seq) for row in page]
        if arguments.json:
            say_json({"entries": [members_of(row) for row in rows]})
        elif rows:
            say(table(_COLUMNS, [_cells(members) for members in _joined(rows)[-last:]]))
        else:
            say("the audit log is empty")
        return OK
    while True:
        async for page in read_rows(store, after):
            if arguments.json:
                for row in page:
                    write_json_text(export_line(row, "jsonl"))
            else:
                for members in _joined(page):
                    say("  ".join(str(cell) for cell in _cells(members) if cell != ""))
            after = page[-1].seq
        await anyio.sleep(FOLLOW_SECONDS)


async def _export(store: SQLStore, arguments: CommandLine) -> int:
    head = await store.audit_head()
    async for page in read_rows(store, int(arguments.after), until=head.seq):
        for row in page:
            write_json_text(export_line(row, arguments.format))
    return OK


async def _verify(store: SQLStore, arguments: CommandLine) -> int:
    expected = _parse_head(arguments.head)
    head = await store.audit_head()
    check = ChainCheck()
    faults: list[str] = []
    async for page in read_rows(store, until=head.seq):
        check.read(page)
        faults += [
            f"entry {row.seq} has another hash than {expected.hash}"
            for row in page
            if expected is not None and row.seq == expected.seq and row.hash != expected.hash
        ]
    check.end(head)
    if expected is not None and head.seq < expected.seq:
        faults.append(f"the log ends with entry {head.seq}, before {expected.seq}")
    faults += check.faults
    if arguments.json:
        say_json({"entries": head.seq, "head": f"{head.seq}:{head.hash}", "faults": faults})
    elif faults:
        for fault in faults:
            complain(fault, FAILURE)
    else:
        say(f"{head.seq:,} entries, none changed, removed or moved")
        say(f"head {head.seq}:{head.hash}")
    return FAILURE if faults else OK


def _parse_head(text: str | None) -> AuditHead | None:
    if text is None:
        return None
    match = _HEAD.fullmatch(text)
    if match is None:
        raise CommandError.usage(
            "--head: should be POSITION:HASH, as `statehold audit verify` prints it"
        )
    return AuditHead(int(match[1]), match[2])


def _joined(rows: Iterable[AuditRow]) -> list[JSON]:
    """Return the members of entries, those of a request and its result as one, at the place of the request."""
    joined: list[JSON] = []
    requests: dict[Any, JSON] = {}
    for members in map(members_of, rows):
        call = members.get("call")
        request = requests.pop(call, None) if members.get("event") == AuditEvent.RESULT else None
        if request is not None:
            request |= {name: members[name] for name in _OF_RESULT if name in members}
            continue
        joined.append(members)
        if call is not None and members.get("event") == AuditEvent.REQUEST:
            requests[call] = members
    return joined


def _cells(members: JSON) -> tuple[Any, ...]:
    event, what = members.get("event", ""), members.get("tool") or members.get("operation", "")
    milliseconds = members.get("duration_ms")
    return (
        members["seq"],
        timestamp(float(members.get("at", 0))),
        members.get("actor_name") or members.get("subject", ""),
        what if event == AuditEvent.REQUEST else f"{event} {what}".strip(),
        members.get("session_id", ""),
        members.get("decision", ""),
        members.get("outcome", ""),
        "" if milliseconds is None else f"{milliseconds:,.0f} ms",
        members.get("address") or members.get("transport", ""),
    )
