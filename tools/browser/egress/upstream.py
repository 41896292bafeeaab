"""The HTTP proxy of the user's network, through which our proxy may have to open its connections."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class UpstreamProxy:
    """An HTTP proxy. It takes requests without TLS as they are, and opens tunnels by CONNECT for all else.

    It resolves names itself, so the policy checks only literal addresses and loopback names by address.
    """

    host: str
    port: int
    authorization: bytes | None = field(repr=False)
    """The value of Proxy-Authorization."""

    @staticmethod
    def parse(url: str) -> UpstreamProxy:
        """Read `http://[user:password@]host[:port]`.

        Raises:
            PydanticCustomError: A ValueError in one line that names the remedy and shows no password.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _wrong("is no address of a proxy; write http://host:port") from None
        if parts.scheme != "http":
            raise _wrong("is no HTTP proxy; write http://host:port, other kinds cannot be used")
        if not host or port == 0 or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise _wrong("is no address of a proxy; write http://host:port")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = b"Basic " + b64encode(pair.encode())
        return UpstreamProxy(host, port or 80, authorization)

    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.authorization is None:
            return []
        return [(b"Proxy-Authorization", self.authorization)]


def _wrong(problem: str) -> PydanticCustomError:
    return PydanticCustomError("statehold", "{message}", {"message": problem})
