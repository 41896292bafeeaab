"""The request of a client to be served by the background server. After its answer both sides speak MCP, as on stdio."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from ...sessions.errors import InvalidArgument

VERB: Final = "shared"
STOP: Final = "stop"
"""The verb that ends a server. It is answered as the verb `process` is."""
_ROOT: Final = Path(__file__).parents[2]
_PARTS: Final = ("keeper", "sessions", "tools", "access", "server", "console", "shell")
"""The folders with the code of a server."""


class ClientRequest:
    """The members of a request. Not a dataclass: the module takes a tenth of the start of a client."""

    def __init__(
        self,
        build: str = "",
        *,
        pid: int | None = None,
        session: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.build = build
        """The build of a client that starts, as build_id() names it: a background server of another one gives way, once.

        Empty for a client that comes back after the end of a server: so two clients of two builds do not end each other's.
        """
        self.version = "1"
        """A server from before there were builds compares it with its own version, 0.1.0, and gives way."""
        self.pid = os.getpid() if pid is None else pid
        self.session = session
        """The pinned session of the client; None for the default of the server."""
        self.settings = settings or {}
        """The digests of the settings that the client asks of the server; see requested_settings()."""

    def members(self) -> Mapping[str, Any]:
        return vars(self)

    @classmethod
    def parse(cls, members: Mapping[str, Any]) -> ClientRequest:
        """Read a request. Unknown members, of a newer version, are ignored.

        Raises:
            InvalidArgument: it is malformed.
        """
        build, pid = members.get("build", ""), members.get("pid")
        session, settings = members.get("session"), members.get("settings")
        if (
            not isinstance(build, str)
            or not isinstance(pid, int)
            or not isinstance(session, str | None)
            or not isinstance(settings, dict)
        ):
            raise InvalidArgument("The request of the client is malformed.")
        return cls(build, pid=pid, session=session, settings=cast("dict[str, str]", settings))


@cache
def build_id() -> str:
    """Return the digest of the code on the disk when this is first called; see read_build_id()."""
    return read_build_id()


def read_build_id() -> str:
    """Return a digest of the code on the disk: equal for equal code, wherever it is installed. Blocks for some 10 ms."""
    digest = hashlib.sha256()
    for part in _PARTS:
        for folder, folders, files in os.walk(_ROOT / part):
            folders.sort()
            for name in sorted(files):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), "rb", buffering=0) as file:
                        digest.update(file.read())
    return digest.hexdigest()[:32]
