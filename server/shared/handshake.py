"""The first two lines on a connection to the background server: a request of the client, and the reply of the server.

Each is one line of JSON. After the reply `welcome` both sides speak MCP, as on stdio.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Literal, cast

LINE_BYTES = 1 << 16
"""Bytes of a request at most."""
READ_SECONDS = 5.0
"""Seconds in which a client sends its request."""

Kind = Literal["client", "status", "stop"]
Outcome = Literal["welcome", "refused", "retry", "status", "stopping"]


class MalformedLine(ValueError):
    """Raised when a line is no request, or no reply."""


@dataclass(frozen=True)
class Request:
    """The request of a process that has connected: to be served as a client, for the status, or for the end."""

    kind: Kind = "client"
    version: str = field(default_factory=lambda: version("statehold"))
    pid: int = field(default_factory=os.getpid)
    session: str | None = None
    """The pinned session of a client; None for the default of the server."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the settings that a client asks of the server; see requested_settings()."""

    def line(self) -> bytes:
        return _line(asdict(self))

    @classmethod
    def parse(cls, line: bytes) -> Request:
        """Read a request. Unknown members, of a newer version, are ignored.

        Raises:
            MalformedLine: the line is no request.
        """
        values = _parse(line)
        kind, settings = values.get("kind"), values.get("settings")
        version, pid, session = values.get("version"), values.get("pid"), values.get("session")
        if (
            kind not in ("client", "status", "stop")
            or not isinstance(version, str)
            or not isinstance(pid, int)
            or not isinstance(session, str | None)
            or not isinstance(settings, dict)
        ):
            raise MalformedLine("the request is malformed")
        return cls(kind, version, pid, session, cast("dict[str, str]", settings))


@dataclass(frozen=True)
class Reply:
    """The reply of a server.

    `welcome`: MCP follows. `refused`: `text` says why, and what to do. `retry`: the server ends; connect to the next one.
    """

    outcome: Outcome
    text: str = ""
    status: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def line(self) -> bytes:
        return _line(asdict(self))

    @classmethod
    def parse(cls, line: bytes) -> Reply:
        """Read a reply.

        Raises:
            MalformedLine: the line is no reply.
        """
        values = _parse(line)
        outcome, text, status = values.get("outcome"), values.get("text"), values.get("status")
        if not isinstance(outcome, str) or not isinstance(text, str):
            raise MalformedLine("the reply is malformed")
        return cls(
            cast("Outcome", outcome),
            text,
            cast("dict[str, Any]", status) if isinstance(status, dict) else {},
        )


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    try:
        values: object = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedLine("the line is no JSON") from None
    if not isinstance(values, dict):
        raise MalformedLine("the line is no object")
    return cast("dict[str, Any]", values)


def is_newer(one: str, other: str) -> bool:
    """Whether a version is a later release than another. Pre-releases of one release count as equal."""
    return _release(one) > _release(other)


def _release(version: str) -> list[int]:
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in match[0].split(".")] if match else []


__all__ = ["LINE_BYTES", "READ_SECONDS", "MalformedLine", "Reply", "Request", "is_newer"]
