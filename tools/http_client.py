"""The options of every HTTP client of ours: the proxies of the environment, and the TLS certificates.

The proxies of the environment are those that httpx takes, but none stands before this machine: httpx would send it to
them unless NO_PROXY names it.
"""

from __future__ import annotations

import functools
import ssl
from importlib.util import find_spec
from typing import Final, TypedDict
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from .browser.egress.addresses import is_loopback_host

_SOCKS: Final = "socksio"
"""The package with which httpx speaks to SOCKS proxies."""


class HttpOptions(TypedDict):
    """Options of a client of httpx."""

    trust_env: bool
    verify: ssl.SSLContext


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """Return the shared context of this process: creating one takes 20 ms and almost a megabyte."""
    return httpx2.create_ssl_context()


def http_options(url: str) -> HttpOptions:
    """Return the options of a client for one address.

    Raises:
        httpx2.ProxyError: the environment names a SOCKS proxy, and the package for it is not installed.
    """
    proxy = _proxy_of(url)
    scheme = proxy.partition("://")[0].lower()
    if scheme.startswith("socks") and find_spec(_SOCKS) is None:
        raise httpx2.ProxyError(
            f"the environment names a SOCKS proxy for {urlsplit(url).hostname}, which needs the package {_SOCKS}: "
            "install it, or name the host in NO_PROXY"
        )
    return {"trust_env": not _is_local(url), "verify": ssl_context()}


async def read_body(response: httpx2.Response, limit: int) -> bytes | None:
    """Return the body of a streamed response, None if it has more than `limit` bytes.

    It is not decompressed: a small body could become a large one.
    """
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


def server_of(url: str, *, with_path: bool = False) -> str:
    """Return the scheme, host and port of an address, and whether a proxy of the environment stands before it."""
    parts = urlsplit(url)
    path = parts.path if with_path else ""
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
    return f"{server}, by the proxy of the environment" if _proxy_of(url) else server


def _is_local(url: str) -> bool:
    return is_loopback_host(urlsplit(url).hostname or "")


def _proxy_of(url: str) -> str:
    """Return the address of the proxy of the environment for an address, empty if there is none."""
    parts = urlsplit(url)
    if _is_local(url):
        return ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    return "" if not proxy or proxy_bypass(parts.hostname or "") else proxy
