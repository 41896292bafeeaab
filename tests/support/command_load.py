"""Many commands of one process: `python -m support.command_load DATA COUNT SESSION...` from the folder of the tests.

Each command has a connection of its own to the background server of a data folder, as `statehold call SESSION inc` has.
Prints how often the tool counted in each session, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from statehold.server.sockets.command import RESULT_TOKENS, TEXT_ARGUMENTS
from statehold.shell.call.connection import LocalConnection
from statehold.shell.call.words import Words


def run(data: str, count: int, sessions: Sequence[str]) -> dict[str, int]:
    """Run commands one after the other, in the sessions by turns. Return the last count of each session."""
    counts: dict[str, int] = {}
    words = Words("call", [f"--data={data}"])
    meta: dict[str, Any] = {TEXT_ARGUMENTS: {}, RESULT_TOKENS: 2000}
    params: dict[str, Any] = {"name": "inc", "arguments": {}, "_meta": meta}
    for number in range(count):
        session = sessions[number % len(sessions)]
        connection = LocalConnection(words, session)
        try:
            result = connection.request("tools/call", params)
        finally:
            connection.close()
        found: int = result["structuredContent"]["count"]
        if found <= counts.get(session, 0):
            raise AssertionError(f"{session}: {found} after {counts[session]}")
        counts[session] = found
    return counts


if __name__ == "__main__":
    _, data, count, *sessions = sys.argv
    sys.stdout.write(json.dumps(run(data, int(count), sessions)))
