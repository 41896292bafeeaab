"""The sessions that a command names: by an id or a name, or by a filter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...server.exit_codes import USAGE
from ...server.operate import sessions
from ...server.operate.sessions import find_record
from ...sessions.errors import InvalidArgument, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.records import SessionRecord
from ...sessions.times import duration_of
from ..errors import CommandError

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


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


def parse_duration(text: str, flag: str) -> float:
    """Return the duration that a flag has, in seconds; see duration_of().

    Raises:
        CommandError: the text is no such duration.
    """
    seconds = duration_of(text)
    if seconds is None:
        raise CommandError.usage(f"{flag}: should be a time such as 30d, 12h, 45min or 90s")
    return seconds


def parse_metadata(text: str) -> JSON:
    """Read the value of --metadata.

    Raises:
        CommandError: it is no JSON object.
    """
    try:
        return sessions.parse_metadata(text)
    except InvalidArgument as error:
        raise CommandError.usage(error.message) from None
