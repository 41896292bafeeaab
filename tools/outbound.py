"""Requests to URLs that callers chose: to public addresses only, without redirects, within bounds of time and size.

It stands here because the authorization server and the events of sessions use it, and `access` may not import `server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio
import httpx2

from ..sessions.errors import SessionLimit
from ..sessions.live.budget import Budget
from .browser.egress.addresses import IPAddress, is_loopback_host, special
from .browser.egress.resolver import NotFound, Resolver
from .http_client import read_body, ssl_context

SECONDS: Final = 5.0
"""Seconds for a whole request, with the lookup of the address. Before that, it waits as long for its turn."""
URL_CHARACTERS: Final = 2048
MAX_REQUESTS: Final = 256
"""Requests at a time of one client. Each asker has a share of them, and of the lookups of names."""
MAX_OF_ASKER: Final = 8
"""The most of one asker, so that those of some, at servers that do not answer, leave places to others."""
MAX_WAITING: Final = 256

UNREACHABLE: Final = (
    *(httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError, NotFound),
    SessionLimit,
)
"""The errors of a server that does not answer in time, or has to wait for too many requests."""


class DestinationRefused(Exception):
    """Raised for a URL that no request may go to. The text says why."""


@dataclass(frozen=True, slots=True)
class OutboundAnswer:
    """The answer of a server; `body` is None if it has too many bytes."""

    status: int
    body: bytes | None


def allows_loopback(public_url: str | None) -> bool:
    """Whether URLs of loopback are accepted: where the server's own address is one, its callers are on this machine."""
    return is_loopback_host(urlsplit(public_url or "").hostname or "")


class OutboundClient:
    """Sends requests to https URLs of public addresses. It keeps no connection, and has nothing to close.

    With `allow_loopback`, http and https URLs of loopback addresses are accepted too.
    """

    def __init__(self, resolver: Resolver, *, allow_loopback: bool) -> None:
        self._resolver = resolver
        self._allow_loopback = allow_loopback
        self._places = Budget(
            MAX_REQUESTS,
            queue=MAX_WAITING,
            queue_seconds=SECONDS,
            most=MAX_OF_ASKER,
            shared=True,
        )

    def check_url(self, url: str) -> SplitResult:
        """Return the parts of a URL. No name is looked up.

        Raises:
            DestinationRefused: it is no https URL, or has a user or a fragment.
        """
        if len(url) > URL_CHARACTERS or not url.isascii() or not url.isprintable():
            raise DestinationRefused("it is no URL")
        try:
            parts = urlsplit(url)
            port, host = parts.port, parts.hostname
        except ValueError:
            raise DestinationRefused("it is no URL") from None
        schemes = ("https", "http") if self._allow_loopback else ("https",)
        if parts.scheme not in schemes or not host or port == 0:
            raise DestinationRefused("it is no https URL")
        if "@" in parts.netloc or "#" in url or "\\" in url:
            raise DestinationRefused("it has a user or a fragment")
        return parts

    async def request(
        self,
        method: str,
        url: str,
        *,
        asker: str,
        headers: Mapping[str, str],
        answer_bytes: int,
        content: bytes | None = None,
    ) -> OutboundAnswer:
        """Send a request, which counts for its asker.

        Raises:
            DestinationRefused: the URL is refused, or one of its addresses is not public.
            Exception: one of UNREACHABLE.
        """
        parts = self.check_url(url)
        async with (
            self._places.place(asker),
            # A proxy would look the name up again, and could reach an address that was not checked.
            httpx2.AsyncClient(verify=ssl_context(), timeout=SECONDS, trust_env=False) as http,
        ):
            with anyio.fail_after(SECONDS):
                # The address that was checked, and not the name: a second lookup could give another one.
                target = httpx2.URL(url).copy_with(host=await self._address(parts, asker))
                async with http.stream(
                    method,
                    target,
                    headers={"accept-encoding": "identity", **headers, "host": parts.netloc},
                    content=content,
                    follow_redirects=False,
                    extensions={"sni_hostname": parts.hostname},
                ) as answer:
                    return OutboundAnswer(answer.status_code, await read_body(answer, answer_bytes))

    async def _address(self, parts: SplitResult, asker: str) -> str:
        """Return the address to connect to. Each address of the host has to be acceptable."""
        addresses = await self._resolver.addresses(parts.hostname or "", asker)
        if not all(self._accepts(each, parts.scheme) for each in addresses):
            raise DestinationRefused("its address is not public")
        return str(addresses[0])

    def _accepts(self, address: IPAddress, scheme: str) -> bool:
        kind = special(address)
        if kind == "loopback":
            return self._allow_loopback
        return scheme == "https" and kind is None
