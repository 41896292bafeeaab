"""`statehold sessions close|pause|resume|purge|delete`: changes of several sessions, reported one by one."""

from __future__ import annotations

import anyio.to_thread

from ....sessions.errors import SessionBusy, SessionNotFound
from ....sessions.json_codec import JSON
from ....sessions.lifecycle import Status
from ....sessions.plural import plural
from ....sessions.records import Principal, SessionFilter, SessionRecord
from ....sessions.store.sql import SQLStore
from ...config.model import Config
from ..command_line import CommandLine
from ..errors import CommandError
from ..exit_codes import FAILURE, OK
from ..output import complain, say, say_json
from .lookup import find_session, read_pages
from .tool_calls import ToolCaller

_CLOSED_STATUSES = (Status.CLOSED, Status.CLOSING)


async def change_sessions(config: Config, store: SQLStore | None, arguments: CommandLine) -> int:
    """Change each of the named sessions. An error of one does not keep the others from being changed."""
    refs: list[str] = list(arguments.refs)
    if arguments.action == "purge" and bool(refs) == arguments.closed:
        raise CommandError.usage("purge needs either sessions or --closed; give one of them")
    outcomes: list[JSON] = []
    errors: list[CommandError] = []
    if store is None:
        errors = [CommandError.session_unknown(ref, config.data) for ref in refs]
    else:
        async with ToolCaller(config, store) as caller:
            if arguments.action == "purge" and arguments.closed:
                session_filter = SessionFilter(statuses=[Status.CLOSED])
                records, _ = await read_pages(store, session_filter, 10_000_000)
                refs = [record.id for record in records]
            for ref in refs:
                try:
                    record = await find_session(store, ref, config.data)
                    outcomes.append(await _change(caller, record, arguments))
                except CommandError as error:
                    errors.append(error)
    return _report(arguments, outcomes, errors)


async def _change(caller: ToolCaller, record: SessionRecord, arguments: CommandLine) -> JSON:
    """Change one session and return `session_id`, `name`, `status` and whether it `changed`."""
    match arguments.action:
        case "purge":
            return await _purge(caller, record)
        case "delete":
            await caller.call(record, "session_delete", force=arguments.force)
            await anyio.to_thread.run_sync(caller.delete_files, record.id)
            return _outcome(record, "deleted", changed=True)
        case "close":
            return await _close(caller, record, force=arguments.force)
        case action:
            if record.status in _CLOSED_STATUSES:
                raise CommandError.session_closed(record)
            return await (_pause if action == "pause" else _resume)(caller, record)


async def _close(caller: ToolCaller, record: SessionRecord, *, force: bool) -> JSON:
    if record.status in _CLOSED_STATUSES and record.node is None:
        return _outcome(record, record.status.value, changed=False)
    content = await caller.call(record, "session_close", force=force)
    return _outcome(record, content["status"], changed=not content["already_closed"])


async def _pause(caller: ToolCaller, record: SessionRecord) -> JSON:
    content, record = await caller.ask_holder(record, "session_pause")
    if content is not None:
        return _compare_status(record, content)
    if record.status is Status.PAUSED:
        return _outcome(record, record.status.value, changed=False)
    return _compare_status(record, await caller.call_here(record, "session_pause"))


async def _resume(caller: ToolCaller, record: SessionRecord) -> JSON:
    """Resume a session in a running process: this process ends at once, and its live connections with it."""
    content, record = await caller.ask_holder(record, "session_resume")
    if content is None:
        content = await caller.ask_any(record, "session_resume", unless=("session_not_found",))
    if content is None:
        raise CommandError(
            "service_unavailable",
            f"{record.id}: no Statehold that runs on this data folder opens it; it resumes by itself when called",
        )
    return _compare_status(record, content)


async def _purge(caller: ToolCaller, record: SessionRecord) -> JSON:
    registry = await caller.open_registry({})
    try:
        await registry.rename_delete.purge(Principal.of_key(record.owner), record.id)
    except SessionNotFound:
        raise CommandError.session_unknown(record.id, caller.config.data) from None
    except SessionBusy:
        message = f"{record.id} is {record.status.value}; close it first"
        raise CommandError("session_busy", message) from None
    return _outcome(record, "purged", changed=True)


def _compare_status(record: SessionRecord, content: JSON) -> JSON:
    status = str(content["status"])
    return _outcome(record, status, changed=status != record.status.value)


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
    for error in errors:
        complain(str(error))
    # Return the code of "not found" or "busy" only if all errors have it.
    codes = {error.exit_code for error in errors}
    return OK if not codes else codes.pop() if len(codes) == 1 else FAILURE


__all__ = ["change_sessions"]
