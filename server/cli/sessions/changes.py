"""`statehold sessions close|pause|resume|purge|delete`: changes of several sessions, reported one by one."""

from __future__ import annotations

import anyio.to_thread

from ....sessions.errors import SessionBusy, SessionNotFound
from ....sessions.json_codec import JSON
from ....sessions.lifecycle import Status
from ....sessions.records import Principal, SessionFilter, SessionRecord
from ....sessions.store import SQLStore
from ...config.model import Config
from ..command_line import CommandLine
from ..errors import CommandError
from ..exit_codes import FAILURE, OK
from ..output import complain, plural, say, say_json
from .lookup import find_session, read_pages
from .tool_calls import ToolCaller

_ENDED = (Status.CLOSED, Status.CLOSING)


async def change_sessions(config: Config, store: SQLStore | None, arguments: CommandLine) -> int:
    """Change each of the named sessions. An error of one does not keep the others from being changed."""
    wanted: list[str] = list(arguments.wanted)
    if arguments.action == "purge" and bool(wanted) == arguments.closed:
        raise CommandError.usage("purge needs either sessions or --closed; give one of them")
    changed: list[JSON] = []
    errors: list[CommandError] = []
    if store is None:
        errors = [CommandError.unknown(name, config.data) for name in wanted]
    else:
        async with ToolCaller(config, store) as caller:
            if arguments.action == "purge" and arguments.closed:
                closed = SessionFilter(statuses=[Status.CLOSED])
                records, _ = await read_pages(store, closed, 10_000_000)
                wanted = [record.id for record in records]
            for name in wanted:
                try:
                    record = await find_session(store, name, config.data)
                    changed.append(await _change(caller, record, arguments))
                except CommandError as error:
                    errors.append(error)
    return _report(arguments, changed, errors)


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
            if record.status in _ENDED:
                raise CommandError.closed(record)
            return await (_pause if action == "pause" else _resume)(caller, record)


async def _close(caller: ToolCaller, record: SessionRecord, *, force: bool) -> JSON:
    if record.status in _ENDED and record.node is None:
        return _outcome(record, record.status.value, changed=False)
    found = await caller.call(record, "session_close", force=force)
    return _outcome(record, found["status"], changed=not found["already_closed"])


async def _pause(caller: ToolCaller, record: SessionRecord) -> JSON:
    found, record = await caller.ask_holder(record, "session_pause")
    if found is not None:
        return _compared(record, found)
    if record.status is Status.PAUSED:
        return _outcome(record, record.status.value, changed=False)
    return _compared(record, await caller.call_here(record, "session_pause"))


async def _resume(caller: ToolCaller, record: SessionRecord) -> JSON:
    """Resume a session in a running process: this process ends at once, and its live connections with it."""
    found, record = await caller.ask_holder(record, "session_resume")
    if found is None:
        found = await caller.ask_any(record, "session_resume", unless=("session_not_found",))
    if found is None:
        raise CommandError(
            "service_unavailable",
            f"{record.id}: no Statehold that runs on this data folder opens it; it resumes by itself when called",
        )
    return _compared(record, found)


async def _purge(caller: ToolCaller, record: SessionRecord) -> JSON:
    registry = await caller.open_registry({})
    try:
        await registry.rename_delete.purge(Principal.of_key(record.owner), record.id)
    except SessionNotFound:
        raise CommandError.unknown(record.id, caller.config.data) from None
    except SessionBusy:
        message = f"{record.id} is {record.status.value}; close it first"
        raise CommandError("session_busy", message) from None
    return _outcome(record, "purged", changed=True)


def _compared(record: SessionRecord, found: JSON) -> JSON:
    status = str(found["status"])
    return _outcome(record, status, changed=status != record.status.value)


def _outcome(record: SessionRecord, status: str, *, changed: bool) -> JSON:
    return {"session_id": record.id, "name": record.name, "status": status, "changed": changed}


def _report(arguments: CommandLine, changed: list[JSON], errors: list[CommandError]) -> int:
    if arguments.json:
        failed = [{"code": error.code, "message": str(error)} for error in errors]
        say_json({"sessions": changed, "errors": failed})
    elif arguments.action == "purge":
        say(f"{plural(len(changed), 'session')} purged")
    else:
        for session in changed:
            name = f" ({session['name']})" if session.get("name") else ""
            already = "" if session["changed"] else " already"
            say(f"{session['session_id']}{name} is {session['status']}{already}")
    for error in errors:
        complain(str(error))
    # Return the code of "not found" or "busy" only if all errors have it.
    codes = {error.exit_code for error in errors}
    return OK if not codes else codes.pop() if len(codes) == 1 else FAILURE


__all__ = ["change_sessions"]
