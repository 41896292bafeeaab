"""`statehold sessions state`: reads and changes the state of a session, whether a process holds it or not."""

from __future__ import annotations

import json
from typing import NoReturn

from ...server.config.model import Config
from ...server.exit_codes import FAILURE, OK
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.records import SessionRecord, StateRecord
from ...sessions.state.patch import MISSING, tokens_of, value_at
from ...sessions.store.sql import SQLStore
from ..output import CommandError, say, say_json
from ..parser import CommandLine
from .tool_calls import ToolCaller


async def read_state(store: SQLStore, record: SessionRecord, arguments: CommandLine) -> int:
    """Print the value at a path of a state. A closed session keeps its state until it is purged.

    Raises:
        CommandError: there is no value.
    """
    if arguments.if_version is not None:
        raise CommandError.usage("--if-version goes with --set or --merge; give one of them")
    state = await store.state(record.id) or StateRecord(session_id=record.id)
    try:
        value = value_at(state.value, tokens_of(arguments.path))
    except SessionError as error:
        raise CommandError.of_session(record, error) from None
    exists = value is not MISSING
    if arguments.json:
        content: JSON = {
            "found": exists,
            "value": value if exists else None,
            "version": state.version,
        }
        say_json({"session_id": record.id, "name": record.name, **content})
    elif exists:
        say_json(value)
    else:
        message = f"{record.id}: there is nothing at {arguments.path} in its state"
        raise CommandError("state_invalid", message)
    return OK if exists else FAILURE


async def update_state(config: Config, record: SessionRecord, arguments: CommandLine) -> int:
    """Change a state. A paused session stays paused.

    Raises:
        CommandError: the state was not changed.
    """
    change = _read_change(arguments)
    if record.status in (Status.CLOSED, Status.CLOSING):
        raise CommandError.session_closed(record)
    caller = ToolCaller(config, arguments)
    version = (await caller.call(record, "state_update", **change))["version"]
    if arguments.json:
        say_json({"session_id": record.id, "name": record.name, "version": version})
    else:
        name = f" ({record.name})" if record.name else ""
        say(f"the state of {record.id}{name} is at version {version}")
    return OK


def _read_change(arguments: CommandLine) -> JSON:
    if arguments.set is not None and arguments.merge is not None:
        raise CommandError.usage("--set and --merge exclude each other; give one of them")
    replace = arguments.set is not None
    text = str(arguments.set if replace else arguments.merge)
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        flag = "--set" if replace else "--merge"
        raise CommandError.usage(f"{flag}: this is not JSON ({error}); quote it") from None
    mode = "replace" if replace else "merge"
    return {
        "values": values,
        "mode": mode,
        "path": arguments.path,
        "if_version": arguments.if_version,
    }


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
