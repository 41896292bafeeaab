"""The connection of a client to the background server of a data folder, which is started if there is none.

Everything here blocks, and imports only the standard library: a client waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..sockets.request import Exchange, Unanswered, Unreachable
from .folder import REPLY_SECONDS, START_LOCK, SharedFolder
from .start import start_server

START_SECONDS: Final = 60.0
"""Seconds until a server has to answer, with the end of an earlier one and the start of a new one."""
RETRY_SECONDS: Final = 0.02


class ServerUnavailable(Exception):
    """Raised when no server of the data folder can be reached or started. Its text is one line."""


def connect(
    folder: SharedFolder,
    verb: str,
    members: Mapping[str, Any],
    command: Sequence[str],
    *,
    following: bytes = b"",
    seconds: float = REPLY_SECONDS,
) -> Exchange:
    """Return a connection on which the server serves this client. `command` starts a server if there is none.

    `following` are the first bytes of the client, for the server that answers within `seconds`.

    Raises:
        Refused: the server does not serve this client.
        ServerUnavailable: no server can be reached or started.
        OSError: the folder cannot be used.
    """
    deadline = time.monotonic() + START_SECONDS
    folder.create()
    while True:
        try:
            return folder.send(verb, members, following, seconds=seconds)
        except Unreachable:
            pass
        except Unanswered as error:
            raise ServerUnavailable(
                f"the server of {folder.data} gives no answer: {error}; see {folder.log}"
            ) from None
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ServerUnavailable(
                f"the server of {folder.data} does not answer; see {folder.log}"
            )
        _start_unless_running(folder, command, remaining)
        # A server with many new clients has still to accept them.
        time.sleep(RETRY_SECONDS)


def _start_unless_running(folder: SharedFolder, command: Sequence[str], within: float) -> None:
    """Start a server. Of several clients at once one starts it, and the others wait for it."""
    with folder.lock(START_LOCK, within=within) as is_held:
        if is_held and not folder.has_server():
            reason = start_server(folder, command, within=within)
            # A server that another client started may have been faster, if that client was killed meanwhile.
            if reason is not None and not folder.has_server():
                raise ServerUnavailable(f"the server of {folder.data} did not start: {reason}")
