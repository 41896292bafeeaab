"""What a connection needs of its transport. Above: the wire. Below: a child process, Streamable HTTP or HTTP+SSE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias

from mcp.client._transport import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

REASON_LENGTH: Final = 2048
SHORTEST_SECRET: Final = 4
_SECRET_FLAG: Final = re.compile(r"(?i)key|token|secret|passw|credential|auth|dsn")


class Channel(Protocol):
    """An open transport: the SDK's two streams, and what happened to them."""

    @property
    def read(self) -> ReadStream[SessionMessage | Exception]: ...

    @property
    def write(self) -> WriteStream[SessionMessage]: ...

    @property
    def http(self) -> bool:
        """Whether requests carry MCP headers."""
        ...

    def never_sent(self, number: int) -> bool:
        """Whether the request of that id is known not to have left."""
        ...

    def gone(self) -> str | None:
        """Why the far side no longer knows this connection, if it said so."""
        ...

    async def farewell(self) -> tuple[str, str]:
        """Say why the read stream ended, and the last words of the far side. Waits a moment for both."""
        ...

    def words(self) -> str:
        """The last words of the far side up to now."""
        ...

    def hint(self) -> str:
        """Add what the transport saw to the story of a request that was refused; empty for nothing."""
        ...


OpenChannel: TypeAlias = AbstractAsyncContextManager[Channel]


class Secrets:
    """The values of a configuration that must not be shown, and how to take them out of a text."""

    def __init__(self, values: Iterable[str] = (), args: Iterable[str] = ()) -> None:
        found = {*values, *_secret_arguments(args)}
        # A header value is often "Bearer XYZ": the second word alone is as secret.
        found |= {word for value in found for word in value.split()}
        kept = sorted((v for v in found if len(v) >= SHORTEST_SECRET), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, kept))) if kept else None

    def __repr__(self) -> str:
        return "<Secrets>"

    def redact(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub("***", text)

    def story(self, cause: str, words: str = "") -> str:
        """Return a cause and the last words after it, without secrets and of bounded length."""
        cause = self.redact(cause)
        room = REASON_LENGTH - len(cause) - len("; it last said: ...")
        words = self.redact(words).strip()
        if not words or room <= 0:
            return cause[:REASON_LENGTH]
        if len(words) > room:
            words = "..." + words[-room:]
        return f"{cause}; it last said: {words}"


def _secret_arguments(args: Iterable[str]) -> set[str]:
    """Find the values of arguments such as `--api-key X` and `--token=X`."""
    found: set[str] = set()
    previous = ""
    for argument in args:
        flag, given, value = argument.partition("=")
        if given and _SECRET_FLAG.search(flag):
            found.add(value)
        elif previous.startswith("-") and "=" not in previous and _SECRET_FLAG.search(previous):
            found.add(argument)
        previous = argument
    return found


def url_secrets(url: str | None) -> set[str]:
    """Return the parts of a URL that may be secret: user, password and query."""
    if url is None:
        return set()
    from urllib.parse import parse_qsl, urlsplit

    parts = urlsplit(url)
    values = {value for _, value in parse_qsl(parts.query)}
    return {part for part in (parts.username, parts.password, parts.query, *values) if part}


def configured_secrets(
    env: Mapping[str, str], headers: Mapping[str, str], args: Iterable[str], url: str | None
) -> Secrets:
    return Secrets((*env.values(), *headers.values(), *url_secrets(url)), args)


__all__ = ["Channel", "OpenChannel", "Secrets", "configured_secrets", "url_secrets"]
