"""`statehold sessions rename|fork|merge|export|import`, whether a process holds the session or not."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from ...server.config.model import Config
from ...server.config.variables import redactor_of
from ...server.exit_codes import OK
from ...server.operate.sessions import parse_owner, read_pages
from ...server.printing import write_json_text
from ...sessions.actions.document import Document, write_document
from ...sessions.actions.export import export_document
from ...sessions.clock import SystemClock
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import OPEN, Status
from ...sessions.one_line import plural
from ...sessions.records import LOCAL, SessionFilter, SessionRecord
from ...sessions.store.sql import SQLStore
from ..output import CommandError, plain, say, say_json
from ..parser import CommandLine
from ..progress import ProgressBar
from .tool_calls import ToolCaller, find_session, parse_metadata

MAX_SESSIONS: Final = 1_000_000
"""The most sessions that are exported at once."""


async def rename(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Change the name of a session, or its metadata."""
    _refuse_closed(record)
    changes: JSON = {}
    if arguments.name is not None or arguments.unname:
        changes["name"] = arguments.name
    if arguments.metadata is not None:
        changes["metadata"] = parse_metadata(arguments.metadata)
    if not changes or (arguments.name is not None and arguments.unname):
        raise CommandError.usage("rename needs a NAME, or --unname, or --metadata; give one")
    session = await ToolCaller(config, arguments).call(record, "session_rename", **changes)
    if arguments.json:
        say_json({key: session[key] for key in ("session_id", "name", "metadata")})
    else:
        name = session["name"]
        say(f"{record.id} is called {plain(name)}" if name else f"{record.id} has no name")
    return OK


async def fork(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Create children of a session."""
    _refuse_closed(record)
    names: list[str] | None = arguments.name
    count: int = arguments.count or len(names or [1])
    if record.node is None:
        # A child uses the services of its parent, so a server that is started has to know them.
        _refuse_unknown(config, record)
    caller = ToolCaller(config, arguments)
    result = await caller.call(record, "session_fork", count=count, names=names)
    children: list[JSON] = result["children"]
    if arguments.json:
        say_json({"session_id": record.id, "children": children, "services": result["services"]})
        return OK
    for child in children:
        name = f" ({plain(child['name'])})" if child["name"] else ""
        say(f"{child['session_id']}{name} was forked from {record.id}")
    for service in result["services"]:
        if not service["copied"]:
            say(f"  {plain(service['service'])}: {service['note']}")
    return OK


async def merge(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Merge the states of children into that of a session."""
    _refuse_closed(record)
    sources = [(await find_session(store, name, config.data)).id for name in arguments.sources]
    caller = ToolCaller(config, arguments)
    result = await caller.call(record, "session_merge", sources=sources, policy=arguments.policy)
    if arguments.json:
        say_json({"session_id": record.id, **result})
        return OK
    count: int = result["conflict_count"]
    say(
        f"the state of {record.id} is at version {result['version']}, with {plural(count, 'conflict')}"
    )
    for conflict in result["conflicts"]:
        outcome = "taken" if conflict["taken"] else "left out"
        say(f"  {plain(conflict['path']) or '/'}: that of {conflict['source']} was {outcome}")
    return OK


async def export(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Write a session into a file."""
    target = str(arguments.output or arguments.file)
    with ProgressBar(f"exporting {record.name or record.id}", is_json=arguments.json) as bar:
        document = await _document(config, store, record, arguments, bar.update)
        text = await anyio.to_thread.run_sync(write_document, document)
        if target != "-":
            file, is_forced = Path(target), bool(arguments.force)
            await anyio.to_thread.run_sync(_write, file, text, is_forced)
    if target == "-":
        write_json_text(text.decode())
        return OK
    if arguments.json:
        summary = {"session_id": record.id, "name": record.name, "file": target}
        say_json({**summary, "bytes": len(text), "secrets": document.secrets})
    else:
        with_or_without = "with" if document.secrets else "without"
        say(f"{target} has {record.id}, {with_or_without} its secrets ({len(text)} bytes)")
    return OK


async def export_all(config: Config, store: SQLStore | None, arguments: CommandLine) -> int:
    """Write each open session of an owner into a folder, in files that sort by the creation of the sessions."""
    if arguments.ref is not None:
        raise CommandError.usage("export takes a SESSION, or --all FOLDER, not both")
    folder, is_forced = Path(arguments.folder), bool(arguments.force)
    owner = parse_owner(arguments.owner) or LOCAL.key
    records: list[SessionRecord] = []
    if store is not None:
        records, _ = await read_pages(store, SessionFilter(statuses=sorted(OPEN)), MAX_SESSIONS)
    chosen = [record for record in records if record.owner == owner]
    try:
        await anyio.to_thread.run_sync(partial(folder.mkdir, 0o700, parents=True, exist_ok=True))
    except OSError as error:
        raise CommandError.usage(f"{folder}: {error.strerror}; name another folder") from None
    with ProgressBar(f"exporting to {folder}", is_json=arguments.json) as bar:
        for number, record in enumerate(chosen, 1):
            assert store is not None
            document = await _document(config, store, record, arguments, None)
            text = await anyio.to_thread.run_sync(write_document, document)
            file = folder / f"{int(record.created_at * 1000):013d}-{record.id}.json"
            await anyio.to_thread.run_sync(_write, file, text, is_forced)
            bar.update(number, len(chosen))
    others = len(records) - len(chosen)
    if arguments.json:
        say_json({"folder": str(folder), "sessions": len(chosen), "of_other_owners": others})
        return OK
    with_or_without = "with" if arguments.secrets else "without"
    say(
        f"{plain(str(folder))} has {plural(len(chosen), 'open session')}, {with_or_without} their secrets"
    )
    if others:
        say(f"  without {others} of other owners: see --owner")
    return OK


async def _document(
    config: Config,
    store: SQLStore,
    record: SessionRecord,
    arguments: CommandLine,
    report: Callable[[int, int], None] | None,
) -> Document:
    if arguments.secrets and record.node is not None:
        # A snapshot taken now is newer than the stored one.
        await ToolCaller(config, arguments).ask(record, record.node, "operator_save")
    return await export_document(
        store,
        await store.get(record.id) or record,
        now=SystemClock().now(),
        redactor=redactor_of(config.policy()),
        secrets=bool(arguments.secrets),
        report=report,
    )


def _write(file: Path, text: bytes, force: bool) -> None:
    """Write a document into a file that only the user can read; all of it, or no file."""
    if not force and os.path.lexists(file):
        raise CommandError.usage(f"{file} is there already; name another file, or add --force")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CommandError.usage(f"{file}: {error.strerror}; name another file") from None


def _refuse_unknown(config: Config, record: SessionRecord) -> None:
    unknown = [name for name in record.services if name not in config.enabled_services()]
    if unknown:
        raise CommandError(
            "service_not_bound",
            f"{record.id} uses {', '.join(unknown)}, which is not configured here; give the --config of its server",
        )


def _refuse_closed(record: SessionRecord) -> None:
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise CommandError.session_closed(record)


Action = Callable[[Config, SQLStore, SessionRecord, CommandLine], Awaitable[int]]
ACTIONS: Final[dict[str, Action]] = {
    "rename": rename,
    "fork": fork,
    "merge": merge,
    "export": export,
}
"""The actions on one session, by their names on the command line."""
