"""The requests of a connection without TLS, rewritten for an HTTP proxy, which takes them without a tunnel."""

from __future__ import annotations

import re
from typing import Final

import anyio

from .policy import Target
from .upstream import UpstreamProxy

HEAD_BYTES: Final = 256 * 1024
"""The largest head of a request. Browsers and sites have smaller limits."""
HEAD_END: Final = b"\r\n\r\n"

_LENGTH: Final = re.compile(rb"^content-length:[ \t]*(\d+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNKED: Final = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)
_UPGRADE: Final = re.compile(rb"^upgrade:", re.IGNORECASE | re.MULTILINE)


def asks_to_upgrade(head: bytes) -> bool:
    """Return whether a request asks for another protocol, such as a WebSocket, which needs a tunnel."""
    return _UPGRADE.search(head) is not None


class RequestRewriter:
    """Gives each request on one connection the absolute address that a proxy needs, and its Proxy-Authorization.

    The address is that of the checked target, whatever the request names as its host. Bodies and responses are not changed.
    """

    def __init__(self, proxy: UpstreamProxy, target: Target) -> None:
        self._site = f"http://{target.authority.removesuffix(':80')}".encode()
        self._headers = b"".join(b"%s: %s\r\n" % header for header in proxy.headers())
        self._head = b""
        self._body_bytes: float = 0
        """The bytes that are left of the body of the current request."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes for the proxy that follow from the next bytes of the browser.

        Raises:
            anyio.BrokenResourceError: They are no requests of a browser.
        """
        output: list[bytes] = []
        while data:
            if self._body_bytes:
                size = int(min(self._body_bytes, len(data)))
                output.append(data[:size])
                data = data[size:]
                self._body_bytes -= size
                continue
            self._head += data
            head, end, data = self._head.partition(HEAD_END)
            if not end:
                if len(head) > HEAD_BYTES:
                    raise anyio.BrokenResourceError
                break
            self._head = b""
            output.append(self._rewrite(head) + end)
        return b"".join(output)

    def _rewrite(self, head: bytes) -> bytes:
        request_line, _, headers = head.partition(b"\r\n")
        method, _, rest = request_line.partition(b" ")
        lengths = set(_LENGTH.findall(headers))
        if not rest.startswith(b"/") or len(lengths) > 1:
            raise anyio.BrokenResourceError
        # A body without a length has no end that is visible here. Browsers send none over HTTP/1.1.
        self._body_bytes = float("inf") if _CHUNKED.search(headers) else int(*lengths or (0,))
        return b"%s %s%s\r\n%s%s" % (method, self._site, rest, self._headers, headers)
