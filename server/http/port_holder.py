"""The owner of a port that is in use, when it is another Statehold, which says so itself."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

SECONDS: Final = 2.0
"""Longest wait for an answer."""
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def holder_of(host: str, port: int) -> str | None:
    """Return a sentence about the Statehold that listens on a port, None when it is another program."""
    address = _ANY.get(host, host)
    connection = http.client.HTTPConnection(address, port, timeout=SECONDS)
    try:
        connection.request("GET", "/livez")
        found: Any = json.loads(connection.getresponse().read(1000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if not isinstance(found, dict) or found.get("server") != "statehold":  # pyright: ignore[reportUnknownMemberType]
        return None
    pid: Any = found.get("pid")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return f"another Statehold (pid {pid}) listens there" if isinstance(pid, int) else None


__all__ = ["holder_of"]
