"""Kinds of networks and the addresses in them. The tables are our own, since Python's differ from version to version."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address
IPNetwork: TypeAlias = IPv4Network | IPv6Network

_METADATA = """169.254.169.254/32 169.254.170.2/32 169.254.170.23/32 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32
    fd00:ec2::/32 fd20:ce::254/128"""
_RESERVED = """0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
    2001::/23 2001:db8::/32 3fff::/20"""

# The first match counts: metadata services lie in networks of other kinds.
_SPECIAL: Final[tuple[tuple[IPNetwork, str], ...]] = tuple(
    (ip_network(network), kind)
    for kind, networks in (
        ("metadata", _METADATA),
        ("unspecified", "0.0.0.0/32 ::/128"),
        ("loopback", "127.0.0.0/8 ::1/128"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
        ("carrier-grade NAT", "100.64.0.0/10"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        ("reserved", _RESERVED),
    )
    for network in networks.split()
)

LOOPBACK: Final[tuple[IPAddress, ...]] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_NAT64: Final = IPv6Network("64:ff9b::/96")


def special(address: IPAddress) -> str | None:
    """Return the kind of an address that is no public one, such as `loopback`, or None.

    An address that only wraps an IPv4 address (mapped, 6to4, NAT64) is of the kind of the wrapped one.
    """
    address = unmap(address)
    inner = embedded_address(address)
    if inner is not None:
        return special(inner)
    for network, kind in _SPECIAL:
        if address.version == network.version and address in network:
            return kind
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    return None


def unmap(address: IPAddress) -> IPAddress:
    """Return the IPv4 address inside an IPv4-mapped one; other addresses unchanged."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def unmap_network(network: IPNetwork) -> IPNetwork:
    """Return the IPv4 network of a network of IPv4-mapped addresses; other networks unchanged."""
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        first = int(network.network_address) & 0xFFFF_FFFF
        return IPv4Network((first, network.prefixlen - _MAPPED.prefixlen))
    return network


def embedded_address(address: IPAddress) -> IPv4Address | None:
    """Return the IPv4 address at which packets to this one end up behind a 6to4 or NAT64 gateway."""
    if isinstance(address, IPv6Address):
        if address in _SIX_TO_FOUR:
            return address.sixtofour
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def meanings(address: IPAddress) -> Iterator[IPAddress]:
    """Yield the address and the one it embeds, for lists that may name either."""
    yield unmap(address)
    inner = embedded_address(address)
    if inner is not None:
        yield inner


def is_loopback_host(host: str) -> bool:
    """Whether only this machine can reach the host of a URL."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_here(address: IPAddress) -> bool:
    """Return whether an address belongs to this machine; True in doubt. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        probe = socket.socket(family, socket.SOCK_DGRAM)
    except OSError:
        return True
    with probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def parse_host(host: str) -> IPAddress | None:
    """Return the address that a host of a URL is, or None for a name, with the IPv4 spellings that resolvers still take.

    Raises:
        ValueError: The host looks like an address and is none, or holds a zone.
    """
    if ":" in host:
        address = IPv6Address(host)
        if address.scope_id is not None:
            raise ValueError("an address with a zone")
        return unmap(address)
    last = host.rstrip(".").rpartition(".")[2]
    if not re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", last):
        return None
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError as error:
        raise ValueError("no address") from error
