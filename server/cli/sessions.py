"""`statehold sessions`: see the sessions of a data folder and change them, whether a process holds them or not."""

from __future__ import annotations

import json
import re
import time
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from ...sessions.errors import StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import OPEN, Status
from ...sessions.records import LOCAL, JournalKind, JournalRecord, SessionFilter, SessionRecord
from ...sessions.store import SQLStore
from ...sessions.views import describe, describe_binding, expiry, timestamp
from ..config.model import Config, ConfigError
from ..gateway.stores import is_made, store_of
from .changes import Refused, SessionChanger
from .filters import chosen
from .nodes import LiveNodes
from .output import ago, complain, pairs, plain, plural, say, say_json, span, table, until
from .parser import FAILURE, OK, USAGE

_PAGE = 500


def run(config: Config, arguments: Namespace) -> int:
    """Run one action and return its exit code."""
    if config.ephemeral:
        raise ConfigError("--ephemeral: nothing is kept, so there are no sessions to see; drop it")
    try:
        return anyio.run(_run, config, arguments)
    except (Refused, StoreUnavailable) as error:
        code = error.code if isinstance(error, Refused) else "store_unavailable"
        if arguments.json:
            say_json({"error": {"code": code, "message": str(error)}})
        return complain(str(error), error.exit_code if isinstance(error, Refused) else FAILURE)


async def _run(config: Config, arguments: Namespace) -> int:
    async with _opened(config) as store:
        match arguments.action:
            case "list":
                return await _list(config, store, arguments)
            case "show":
                return await _show(config, store, arguments)
            case "history" | "summary":
                return await _read(config, store, arguments)
            case "state":
                return await _state(config, store, arguments)
            case "screenshot" | "open":
                return await _look(config, store, arguments)
            case "rename" | "fork" | "merge" | "export":
                return await _move(config, store, arguments)
            case "import":
                return await _import(config, store, arguments)
            case _:
                return await _change(config, store, arguments)


@asynccontextmanager
async def _opened(config: Config) -> AsyncGenerator[SQLStore | None]:
    """Open the store, or yield None where there is none: reading must not create a folder."""
    if not is_made(config):
        yield None
        return
    async with store_of(config) as store:
        yield store


# Seeing.


async def _list(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    statuses = [Status(name) for name in arguments.status or ()]
    if not statuses and not arguments.all:
        statuses = [*OPEN, Status.CLOSING]
    if Status.ACTIVE in statuses:
        statuses.append(
            Status.IDLE
        )  # only the process that holds a session knows that it is active
    wanted = SessionFilter(
        owner=_owner_key(arguments.owner),
        statuses=sorted(set(statuses)) or None,
        **chosen(arguments),
    )
    records, more = ([], False) if store is None else await _pages(store, wanted, arguments.limit)
    live = LiveNodes(config.data, [] if store is None else await store.nodes())
    await live.look(record.node for record in records)
    shown = [live.seen(record) for record in records]
    if arguments.status:
        shown = [record for record in shown if record.status.value in arguments.status]
    if arguments.json:
        say_json({"sessions": [_as_json(record, live) for record in shown], "more": more})
        return OK
    if not shown:
        say(f"no sessions in {config.data}")
        return OK
    say(_table(shown, live))
    if more:
        say(f"... and more: --limit {arguments.limit * 10} shows them")
    return OK


def _owner(record: SessionRecord) -> str:
    """Return an owner for display: the subject alone, unless it has an issuer."""
    return record.owner.removeprefix(":")


def _owner_key(said: str | None) -> str | None:
    """Return the key of an owner that is given in the form of _owner()."""
    if said is None or re.match(r":|\d+\.\d+:", said):
        return said
    return f":{said}"


async def _pages(
    store: SQLStore, wanted: SessionFilter, limit: int
) -> tuple[list[SessionRecord], bool]:
    found: list[SessionRecord] = []
    cursor: str | None = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        page = wanted.model_copy(update={"limit": size, "cursor": cursor})
        records, cursor = await store.list_sessions(page)
        found += records
        if cursor is None:
            break
    return found, cursor is not None


def _as_json(record: SessionRecord, live: LiveNodes) -> JSON:
    return {
        **describe(record, record.status, record.used_at),
        "owner": _owner(record),
        "services": record.services,
        "open_in": live.place(record.node),
    }


def _table(records: list[SessionRecord], live: LiveNodes) -> str:
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
                until(_ends_at(record), now),
                live.place(record.node),
                "" if record.owner == LOCAL.key else _owner(record),
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
    return f"{text} ({record.reason})" if record.status is Status.CLOSED and record.reason else text


def _ends_at(record: SessionRecord) -> float | None:
    if record.status is Status.CLOSED:
        return record.due_at
    return expiry(record, record.status, record.used_at)


async def _show(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    if store is None:
        raise Refused.unknown(arguments.wanted, config.data)
    record = await find(store, arguments.wanted, config)
    live = LiveNodes(config.data, await store.nodes())
    await live.look([record.node])
    record = live.seen(record)
    entries = await store.journal(record.id, last=arguments.last)
    bindings = live.bindings(record.id)
    if bindings is None:
        bindings = [describe_binding(binding) for binding in await store.bindings(record.id)]
    stderr = await live.stderr(record)
    state = await store.state(record.id)
    if arguments.json:
        document = {
            **_as_json(record, live),
            "services": bindings,
            "state_version": state.version if state else 0,
            "journal": [_entry_as_json(entry) for entry in entries],
            "stderr": stderr,
        }
        say_json(document)
        return OK
    now = time.time()
    say(pairs(_facts(record, live, now)))
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


def _facts(record: SessionRecord, live: LiveNodes, now: float) -> list[tuple[str, Any]]:
    times = record.timeouts
    clocks = (("idle", times.idle), ("paused", times.paused), ("lifetime", times.lifetime))
    return [
        ("id", record.id),
        ("name", record.name),
        ("owner", _owner(record)),
        ("namespace", record.namespace),
        ("status", _status(record, now)),
        ("open in", live.place(record.node)),
        ("created", ago(record.created_at, now)),
        ("used", ago(record.used_at, now)),
        ("purged" if record.status is Status.CLOSED else "ends", until(_ends_at(record), now)),
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
                _what(entry),
                entry.status,
                ""
                if entry.ended_at is None or entry.kind is not JournalKind.CALL
                else f"{(entry.ended_at - entry.started_at) * 1000:.0f} ms",
            )
            for entry in entries
        ],
    )


def _what(entry: JournalRecord) -> str:
    if entry.kind is JournalKind.CALL:
        return f"{entry.service}: {entry.tool}"
    if entry.kind is JournalKind.TRANSITION:
        request: JSON = entry.request or {}
        cause = f" ({request['cause']})" if request.get("cause") else ""
        return f"{str(request.get('event')).replace('_', ' ')}{cause}"
    return entry.kind.value


async def find(store: SQLStore, wanted: str, config: Config) -> SessionRecord:
    """Return the session of an id, or of a name: an open one first, of the local user first.

    Raises:
        Refused: there is none, or more than one.
    """
    record = await store.get(wanted)
    if record is not None:
        return record
    found, _ = await _pages(store, SessionFilter(name_prefix=wanted), 10_000)
    found = [record for record in found if record.name == wanted]
    for choice in (
        [r for r in found if r.status is not Status.CLOSED and r.owner == LOCAL.key],
        [r for r in found if r.status is not Status.CLOSED],
        found,
    ):
        if len(choice) == 1:
            return choice[0]
        if choice:
            raise Refused(
                "ambiguous",
                f"{wanted} is the name of {len(choice)} sessions; give the id: {', '.join(r.id for r in choice[:5])}",
                USAGE,
            )
    raise Refused.unknown(wanted, config.data)


# Looking into its browser.


async def _look(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    from .screenshot import screenshot

    if store is None:
        raise Refused.unknown(arguments.wanted, config.data)
    record = await find(store, arguments.wanted, config)
    async with SessionChanger(config, store) as changer:
        if arguments.action == "screenshot":
            return await screenshot(changer, record, arguments)
        from .window import open_window

        return await open_window(changer, record, arguments)


# Its history.


async def _read(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    from .history import history, summary

    if store is None:
        raise Refused.unknown(arguments.wanted, config.data)
    record = await find(store, arguments.wanted, config)
    live = LiveNodes(config.data, await store.nodes())
    await live.look([record.node])
    record = live.seen(record)
    if arguments.action == "history":
        return await history(store, record, arguments)
    return await summary(store, record, config, arguments)


# Its state.


async def _state(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    from .state import read_state, update_state

    if store is None:
        raise Refused.unknown(arguments.wanted, config.data)
    record = await find(store, arguments.wanted, config)
    if arguments.set is None and arguments.merge is None:
        return await read_state(store, record, arguments)
    async with SessionChanger(config, store) as changer:
        return await update_state(changer, record, arguments)


# All of it.


async def _move(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    from . import transfer

    if store is None:
        raise Refused.unknown(arguments.wanted, config.data)
    record = await find(store, arguments.wanted, config)
    async with SessionChanger(config, store) as changer:
        match arguments.action:
            case "rename":
                return await transfer.rename(changer, record, arguments)
            case "fork":
                return await transfer.fork(changer, record, arguments)
            case "merge":
                sources = [await find(store, name, config) for name in arguments.sources]
                return await transfer.merge(changer, record, sources, arguments)
            case _:
                return await transfer.export(changer, record, arguments)


async def _import(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    from .transfer import bring_in

    owner = _owner_key(arguments.owner) or LOCAL.key
    if store is not None:
        async with SessionChanger(config, store) as changer:
            return await bring_in(changer, owner, arguments)
    async with store_of(config) as made, SessionChanger(config, made) as changer:
        return await bring_in(changer, owner, arguments)


# Changing.


async def _change(config: Config, store: SQLStore | None, arguments: Namespace) -> int:
    wanted: list[str] = list(arguments.wanted)
    if arguments.action == "purge" and bool(wanted) == arguments.closed:
        raise Refused("usage", "purge needs either sessions or --closed; give one of them", USAGE)
    done: list[JSON] = []
    errors: list[Refused] = []
    if store is None:
        errors = [Refused.unknown(name, config.data) for name in wanted]
    else:
        async with SessionChanger(config, store) as changer:
            if arguments.action == "purge" and arguments.closed:
                closed = SessionFilter(statuses=[Status.CLOSED])
                records, _ = await _pages(store, closed, 10_000_000)
                wanted = [record.id for record in records]
            for name in wanted:
                try:
                    record = await find(store, name, config)
                    done.append(await _changed(changer, arguments, record))
                except Refused as error:
                    errors.append(error)
    return _report(arguments, done, errors)


async def _changed(changer: SessionChanger, arguments: Namespace, record: SessionRecord) -> JSON:
    force = _force(arguments)
    if arguments.action == "delete":
        from .transfer import delete

        return await delete(changer, record, force=force)
    return await changer.change(arguments.action, record, force)


def _force(arguments: Namespace) -> bool:
    return bool(getattr(arguments, "force", False))


def _report(arguments: Namespace, done: list[JSON], errors: list[Refused]) -> int:
    if arguments.json:
        failed = [{"code": error.code, "message": str(error)} for error in errors]
        say_json({"sessions": done, "errors": failed})
    elif arguments.action == "purge":
        say(f"{plural(len(done), 'session')} purged")
    else:
        for session in done:
            name = f" ({session['name']})" if session.get("name") else ""
            already = "" if session["changed"] else " already"
            say(f"{session['session_id']}{name} is {session['status']}{already}")
    for error in errors:
        complain(str(error))
    # Return the code of "not found" or "busy" only if all errors have it.
    codes = {error.exit_code for error in errors}
    return OK if not codes else codes.pop() if len(codes) == 1 else FAILURE
