"""`statehold sessions close|pause|resume|purge|delete`: changes of several sessions, reported one by one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import anyio.to_thread

from ...server.config.model import Config
from ...server.exit_codes import FAILURE, OK
from ...server.operate.nodes import LiveNodes
from ...server.operate.sessions import read_pages
from ...server.printing import complain
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.one_line import plural
from ...sessions.records import SessionFilter, SessionRecord
from ...sessions.store.sql import SQLStore
from ...tools.processes.workdir import FOLDERS, safe_name
from ..output import CommandError, say, say_json
from ..parser import CommandLine
from .tool_calls import ToolCaller, find_session, parse_duration

_CLOSED_STATUSES = (Status.CLOSED, Status.CLOSING)


async def change_sessions(config: Config, store: SQLStore | None, arguments: CommandLine) -> int:
    """Change each of the named sessions. An error of one does not keep the others from being changed."""
    refs: list[str] = list(arguments.refs)
    unused_seconds: float | None = None
    if arguments.action == "purge":
        if bool(refs) == bool(arguments.closed or arguments.unused_for):
            raise CommandError.usage(
                "purge needs either sessions or --closed or --unused-for; give one of them"
            )
        if arguments.unused_for is not None:
            unused_seconds = parse_duration(arguments.unused_for, "--unused-for")
    outcomes: list[JSON] = []
    errors: list[CommandError] = []
    if store is None:
        errors = [CommandError.session_unknown(ref, config.data) for ref in refs]
    else:
        caller = ToolCaller(config, arguments)
        if arguments.action == "purge" and not refs:
            statuses = [Status.CLOSED] if arguments.closed else None
            refs = await _find_unused(config, store, statuses, unused_seconds)
        for ref in refs:
            try:
                record = await find_session(store, ref, config.data)
                outcomes.append(await _change(caller, record, arguments))
            except CommandError as error:
                errors.append(error)
    return _report(arguments, outcomes, errors)


async def _change(caller: ToolCaller, record: SessionRecord, arguments: CommandLine) -> JSON:
    """Change one session and return `session_id`, `name`, `status` and whether it `changed`.

    `lost` has the services whose connections were lost without being saved, with the reasons, if there are any.
    """
    match arguments.action:
        case "purge":
            if arguments.unused_for is None and record.status is not Status.CLOSED:
                message = f"{record.id} is {record.status.value}; close it first"
                raise CommandError("session_busy", message)
            return await _delete(caller, record, "purged", force=False)
        case "delete":
            return await _delete(caller, record, "deleted", force=arguments.force)
        case "close":
            return await _close(caller, record, force=arguments.force)
        case action:
            if record.status in _CLOSED_STATUSES:
                raise CommandError.session_closed(record)
            return _compare_status(record, await caller.call(record, f"session_{action}"))


async def _find_unused(
    config: Config, store: SQLStore, statuses: list[Status] | None, seconds: float | None
) -> list[str]:
    """Return the sessions of these statuses that were not used for so long, as the processes report that hold them."""
    records, _ = await read_pages(store, SessionFilter(statuses=statuses), 10_000_000)
    if seconds is None:
        return [record.id for record in records]
    used_before = time.time() - seconds
    unused = [record for record in records if record.used_at <= used_before]
    live = LiveNodes(config.data, await store.nodes())
    await live.ask(record.node for record in unused)
    reported = map(live.merge_report, unused)
    return [
        record.id
        for record in reported
        if record.used_at <= used_before and record.status is not Status.ACTIVE
    ]


async def _delete(caller: ToolCaller, record: SessionRecord, status: str, *, force: bool) -> JSON:
    await caller.call(record, "session_delete", force=force)
    # The server may know no service of the session.
    await anyio.to_thread.run_sync(_delete_files, caller.config.data, record.id)
    return _outcome(record, status, changed=True)


def _delete_files(data: Path, session_id: str) -> None:
    for folder in FOLDERS:
        shutil.rmtree(data / folder / safe_name(session_id), ignore_errors=True)


async def _close(caller: ToolCaller, record: SessionRecord, *, force: bool) -> JSON:
    if record.status in _CLOSED_STATUSES and record.node is None:
        return _outcome(record, record.status.value, changed=False)
    content = await caller.call(record, "session_close", force=force)
    return _outcome(record, content["status"], changed=not content["already_closed"])


def _compare_status(record: SessionRecord, content: JSON) -> JSON:
    status = str(content["status"])
    outcome = _outcome(record, status, changed=status != record.status.value)
    lost = {
        each["service"]: each["last_error"]
        for each in content.get("services", ())
        if each["status"] == "lost" and each["last_error"]
    }
    return {**outcome, "lost": lost} if lost and outcome["changed"] else outcome


def _outcome(record: SessionRecord, status: str, *, changed: bool) -> JSON:
    return {"session_id": record.id, "name": record.name, "status": status, "changed": changed}


def _report(arguments: CommandLine, outcomes: list[JSON], errors: list[CommandError]) -> int:
    if arguments.json:
        error_list = [{"code": error.code, "message": str(error)} for error in errors]
        say_json({"sessions": outcomes, "errors": error_list})
    elif arguments.action == "purge":
        say(f"{plural(len(outcomes), 'session')} purged")
    else:
        for outcome in outcomes:
            name = f" ({outcome['name']})" if outcome.get("name") else ""
            already = "" if outcome["changed"] else " already"
            say(f"{outcome['session_id']}{name} is {outcome['status']}{already}")
            for service, reason in outcome.get("lost", {}).items():
                complain(f"warning: {outcome['session_id']}{name}: {service} is lost: {reason}", OK)
    for error in errors:
        complain(str(error))
    # Return the code of "not found" or "busy" only if all errors have it.
    codes = {error.exit_code for error in errors}
    return OK if not codes else codes.pop() if len(codes) == 1 else FAILURE
