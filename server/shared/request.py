"""The request of a client to be served by the background server. After its answer both sides speak MCP, as on stdio."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Final, cast

from ...sessions.errors import InvalidArgument

VERB: Final = "shared"
STATUS, STOP = "status", "stop"
"""Two more verbs of the server: its status, and its end. Both are answered with the status."""
ENDING: Final = "ending"
"""The code of an error: the server ends, and the client should connect to the next one."""


@dataclass(frozen=True)
class ClientRequest:
    """The members of a request."""

    version: str = field(default_factory=lambda: version("statehold"))
    pid: int = field(default_factory=os.getpid)
    session: str | None = None
    """The pinned session of the client; None for the default of the server."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the settings that the client asks of the server; see requested_settings()."""

    def members(self) -> Mapping[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, members: Mapping[str, Any]) -> ClientRequest:
        """Read a request. Unknown members, of a newer version, are ignored.

        Raises:
            InvalidArgument: it is malformed.
        """
        version, pid = members.get("version"), members.get("pid")
        session, settings = members.get("session"), members.get("settings")
        if (
            not isinstance(version, str)
            or not isinstance(pid, int)
            or not isinstance(session, str | None)
            or not isinstance(settings, dict)
        ):
            raise InvalidArgument("The request of the client is malformed.")
        return cls(version, pid, session, cast("dict[str, str]", settings))


def is_newer(one: str, other: str) -> bool:
    """Whether a version is a later release than another. Pre-releases of one release count as equal."""
    return _release(one) > _release(other)


def _release(version: str) -> list[int]:
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in match[0].split(".")] if match else []


__all__ = ["ENDING", "STATUS", "STOP", "VERB", "ClientRequest", "is_newer"]
