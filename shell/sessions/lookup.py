"""Lookup of one session in the store for a command: by id or by name."""

from __future__ import annotations

from pathlib import Path

from ...server.exit_codes import USAGE
from ...server.operate.sessions import find_record
from ...sessions.errors import InvalidArgument, SessionNotFound
from ...sessions.records import SessionRecord
from ...sessions.store.sql import SQLStore
from ..errors import CommandError


async def find_session(store: SQLStore, ref: str, data: Path) -> SessionRecord:
    """Return the session with an id or a name; see find_record().

    Raises:
        CommandError: there is no such session, or the name is ambiguous.
    """
    try:
        return await find_record(store, ref)
    except SessionNotFound as error:
        raise CommandError.session_unknown(ref, data, error.message) from None
    except InvalidArgument as error:
        raise CommandError("ambiguous", error.message, USAGE) from None
