"""The proxies in front of this server, and the clients whose requests they pass on.

`X-Forwarded-For` and `X-Forwarded-Proto` of a trusted proxy are believed, and those of anybody else ignored. Each proxy
appends the address from which it was reached, so that the rightmost one that is no trusted proxy is the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from ...sessions.owned_map import BoundedMap

MAX_CACHED_ADDRESSES: Final = 1024
STATUS_PATHS: Final = frozenset({"/livez", "/readyz", "/health"})
"""The paths of probes, which come from the machine itself and not through a proxy. They tell no secret."""
_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"
_SCHEMES: Final = {b"http": "http", b"https": "https"}


class TrustedProxies:
    """The addresses and networks of the proxies. `needs_proxy`: other machines have to come through one of them."""

    def __init__(self, networks: Iterable[str], *, needs_proxy: bool = False) -> None:
        self._networks = [ip_network(network) for network in networks]
        self._needs_proxy = needs_proxy
        self._trusted = BoundedMap[str, bool](MAX_CACHED_ADDRESSES)

    def trusts(self, address: str) -> bool:
        """Whether an address is that of a proxy."""
        known = self._trusted.get(address)
        if known is None:
            parsed = _parse(address)
            known = parsed is not None and any(parsed in network for network in self._networks)
            self._trusted[address] = known
        return known

    def refuses(self, address: str, path: str) -> bool:
        """Whether a request from an address had to come through a proxy. This machine and probes need not."""
        if not self._needs_proxy or path in STATUS_PATHS or self.trusts(address):
            return False
        parsed = _parse(address)
        return parsed is None or not parsed.is_loopback

    def client_of(
        self, proxy: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> tuple[str, str | None]:
        """Return the address of the client behind a proxy, and the scheme that it used, if the proxy tells it."""
        values = [value for name, value in headers if name == _FOR]
        protos = [value for name, value in headers if name == _PROTO]
        scheme = _SCHEMES.get(protos[-1].rpartition(b",")[2].strip().lower()) if protos else None
        client, rest = proxy, b",".join(values)
        while rest:
            rest, _, last = rest.rpartition(b",")
            address = _address_in(last)
            if address is None:
                break
            client = address
            if not self.trusts(address):
                break
        return client, scheme


def _address_in(text: bytes) -> str | None:
    """Return the address of one entry, without a port."""
    entry = text.decode("latin-1").strip()
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    parsed = _parse(entry)
    return None if parsed is None else str(parsed)


def _parse(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    # A socket that listens on :: shows the addresses of IPv4 so.
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
