"""Detects whether the process that listens on a port is another Statehold, by asking its /livez."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

SECONDS: Final = 2.0
"""Seconds to wait for the answer."""
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def holder_of(host: str, port: int) -> str | None:
    """Return a sentence about the Statehold that listens on a port, None if another program listens."""
    address = _ANY.get(host, host)
    connection = http.client.HTTPConnection(address, port, timeout=SECONDS)
    try:
        connection.request("GET", "/livez")
        liveness: Any = json.loads(connection.getresponse().read(1000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if not isinstance(liveness, dict) or liveness.get("server") != "statehold":  # pyright: ignore[reportUnknownMemberType]
        return None
    pid: Any = liveness.get("pid")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return f"another Statehold (pid {pid}) listens there" if isinstance(pid, int) else None
