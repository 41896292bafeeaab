"""`statehold sessions state`: reads and changes the state of a session, whether a process holds it or not."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import NoReturn

from ...sessions.actions.state import change_state
from ...sessions.errors import SessionError, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.live.session import Session
from ...sessions.records import SessionRecord, StateRecord
from ...sessions.state.patch import MISSING, at, tokens_of, updated
from ...sessions.store import SQLStore
from .changes import Refused, SessionChanger
from .output import say, say_json
from .parser import FAILURE, OK, USAGE
from .screenshot import refuse_closed, refused


async def read_state(store: SQLStore, record: SessionRecord, arguments: Namespace) -> int:
    """Print the value at a path of a state. A closed session keeps its state until it is purged.

    Raises:
        Refused: there is no value.
    """
    if arguments.if_version is not None:
        raise Refused("usage", "--if-version goes with --set or --merge; give one of them", USAGE)
    state = await store.state(record.id) or StateRecord(session_id=record.id)
    try:
        value = at(state.value, tokens_of(arguments.path))
    except SessionError as error:
        raise refused(record, error) from None
    found = value is not MISSING
    if arguments.json:
        shown: JSON = {"found": found, "value": value if found else None, "version": state.version}
        say_json({"session_id": record.id, "name": record.name, **shown})
    elif found:
        say_json(value)
    else:
        message = f"{record.id}: there is nothing at {arguments.path} in its state"
        raise Refused("state_invalid", message)
    return OK if found else FAILURE


async def update_state(changer: SessionChanger, record: SessionRecord, arguments: Namespace) -> int:
    """Change a state, in the process that holds the session, else here.

    Raises:
        Refused: the state was not changed.
    """
    wish = _wish(arguments)
    refuse_closed(record)
    answer: JSON | None = None
    if record.node is not None:
        answer = await changer.ask(record, record.node, "state", **wish)
        if answer is None:
            record = await changer.take_off(record)
    version = await _own(changer, record, wish) if answer is None else answer["version"]
    if arguments.json:
        say_json({"session_id": record.id, "name": record.name, "version": version})
    else:
        name = f" ({record.name})" if record.name else ""
        say(f"the state of {record.id}{name} is at version {version}")
    return OK


def _wish(arguments: Namespace) -> JSON:
    if arguments.set is not None and arguments.merge is not None:
        raise Refused("usage", "--set and --merge exclude each other; give one of them", USAGE)
    replace = arguments.set is not None
    text = str(arguments.set if replace else arguments.merge)
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        flag = "--set" if replace else "--merge"
        raise Refused("usage", f"{flag}: this is not JSON ({error}); quote it", USAGE) from None
    mode = "replace" if replace else "merge"
    return {
        "values": values,
        "mode": mode,
        "path": arguments.path,
        "if_version": arguments.if_version,
    }


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


async def _own(changer: SessionChanger, record: SessionRecord, wish: JSON) -> int:
    """Change the state of a session that no process holds; it stays paused."""
    session = await changer.claimed(record)

    def change(state: StateRecord) -> StateRecord:
        return updated(state, **wish)

    try:
        newer = await change_state(session, change)
    except SessionError as error:
        raise refused(record, error) from None
    finally:
        await _given_back(session)
    assert newer is not None, "the session cannot be closed meanwhile"
    return newer.version


async def _given_back(session: Session) -> None:
    try:
        await session.save(node=None, due_at=session.deadline())
    except (SessionError, StoreUnavailable):
        # Another process took it over, or finds that this one is dead.
        session.released = True


__all__ = ["read_state", "update_state"]
