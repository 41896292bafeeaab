"""The connection of a command: to the background server of this machine, or to the server of --url."""

from __future__ import annotations

from ...server.sockets.command import ANY
from .connection import LocalConnection
from .words import Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .remote import RemoteConnection


def connect(
    words: Words, session: str | None, presence: str = ANY
) -> LocalConnection | RemoteConnection:
    """Return the connection of a command, which connects at its first request.

    Raises:
        WrongUsage: --url and the options beside it are wrong.
    """
    if not words.has("--url"):
        return LocalConnection(words, session, presence)
    # Imported here: HTTP takes as long as all other imports.
    from .remote import RemoteConnection

    return RemoteConnection(words, session, pinned=words.command not in ("tasks", "answer"))
