"""The network policy of a session: which hosts its pages may reach.

A name is checked before it is resolved, and then every address that it resolves to.

Lists hold entries of the form `[scheme://]host[:port]`. The host is a name, `*.name` for all names below it (not itself),
`*` for every name and address, an address (IPv6 in brackets when a port follows) or a network such as `10.0.0.0/8`. A
scheme means its default port unless one is written; `:*` is every port. `http` and `ws` mean connections without TLS,
`https` and `wss` those with it. A name has to be allowed as a name, whatever it resolves to; then each address has to be
allowed as an address."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from .addresses import (
    LOOPBACK,
    IPAddress,
    IPNetwork,
    meanings,
    parse_host,
    special,
    unmap,
    unmap_network,
)

_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_SECURE: Final = ("https", "wss")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a request. The host is in lower case, without brackets and final dot."""

    host: str
    port: int
    address: IPAddress | None
    """The host as an address; None if it is a name."""
    is_secure: bool | None = None
    """Whether the connection uses TLS; None while this is not known."""

    @staticmethod
    def of(host: str, port: int) -> Target:
        """Return the normalized target.

        Raises:
            ValueError: The host is neither a name nor an address, or the port is none.
        """
        if not 0 < port < 65536:
            raise ValueError("no port")
        host = host.lower().removeprefix("[").removesuffix("]")
        address = parse_host(host)
        if address is not None:
            return Target(str(address), port, address)
        host = host.removesuffix(".")
        if not _NAME.fullmatch(host):
            raise ValueError("no name of a host")
        return Target(host, port, None)

    @staticmethod
    def of_url(url: str) -> Target:
        """Return the target of a request for a URL. Raises ValueError as of() does."""
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        return Target.of(parts.hostname or "", port)

    @property
    def authority(self) -> str:
        """The host with its port, as a CONNECT line spells it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return self.authority.removesuffix(":443").removesuffix(":80")


@dataclass(frozen=True, slots=True)
class _Entry:
    host: str
    """A name, `*.name` or `*`; for a network, its text."""
    network: IPNetwork | None
    port: int | None
    """None for every port."""
    is_secure: bool | None = None
    """None for connections with and without TLS."""

    def fits(self, target: Target) -> bool:
        """Return whether port and scheme match."""
        has_port = self.port is None or self.port == target.port
        return has_port and self.is_secure in (None, target.is_secure)


class _Entries:
    """The entries of a list. The time of a lookup does not depend on the number of names."""

    def __init__(self, texts: list[str]) -> None:
        self._by_host: dict[str, list[_Entry]] = {}
        self._networks: list[tuple[IPNetwork, _Entry]] = []
        self.has_schemes = False
        for entry in map(_parse, texts):
            self.has_schemes = self.has_schemes or entry.is_secure is not None
            if entry.network is not None:
                self._networks.append((entry.network, entry))
            else:
                self._by_host.setdefault(entry.host, []).append(entry)

    def lists_host(self, target: Target) -> bool:
        """Return whether the host itself is listed, directly or by a wildcard."""
        if target.address is not None and self.covers(target, target.address):
            return True
        return any(
            entry.fits(target)
            for host in _spellings(target)
            for entry in self._by_host.get(host, ())
        )

    def blocks(self, target: Target, address: IPAddress) -> bool:
        """Return whether a blocklist with these entries blocks an address.

        The unspecified address counts as loopback too, because systems connect it to themselves.
        """
        addresses = (address, *LOOPBACK) if unmap(address).is_unspecified else (address,)
        return any(self.covers(target, meaning) for meaning in addresses)

    def covers(self, target: Target, address: IPAddress) -> bool:
        """Return whether an entry covers this address, or the IPv4 address embedded in it."""
        return any(
            meaning.version == network.version and meaning in network and entry.fits(target)
            for meaning in meanings(address)
            for network, entry in self._networks
        )


def _spellings(target: Target) -> Iterator[str]:
    yield "*"
    if target.address is not None:
        return
    yield target.host
    rest = target.host
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"*.{rest}"


def _wrong(entry: str, problem: str) -> PydanticCustomError:
    return PydanticCustomError("statehold", "{message}", {"message": f"{entry!r} {problem}"})


def _parse(text: str) -> _Entry:
    entry = text.strip().lower()
    scheme, slashes, rest = entry.rpartition("://")
    if slashes and scheme not in _DEFAULT_PORTS:
        raise _wrong(text, "names no scheme a page can load; write http:// or https://, or none")
    network = None if slashes else _network(text, rest)
    if network is not None:
        return _Entry(str(network), network, None)
    rest = rest.removesuffix("/")
    if re.search(r"[/?#@\\]", rest):
        raise _wrong(text, "names more than a host; write the host alone, such as example.com")
    if rest.count(":") > 1 and "[" not in rest:
        rest = f"[{rest}]"
    match = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}|\*))?", rest)
    if match is None:
        raise _wrong(text, "is no host; write example.com, example.com:8443 or [fd00::1]:8443")
    port = _DEFAULT_PORTS.get(scheme) if match[2] is None else _port(text, match[2])
    entry = _entry(text, match[1], port)
    return replace(entry, is_secure=scheme in _SECURE) if slashes else entry


def _entry(text: str, host: str, port: int | None) -> _Entry:
    if host == "*":
        return _Entry(host, None, port)
    try:
        target = Target.of(host.removeprefix("*."), 1)
    except ValueError:
        raise _wrong(text, _remedy(host)) from None
    if target.address is None:
        star = "*." if host.startswith("*.") else ""
        return _Entry(star + target.host, None, port)
    if host.startswith("*."):
        raise _wrong(text, "is no range of addresses; write a network, such as 10.0.0.0/8")
    return _Entry(target.host, ip_network(target.address), port)


def _remedy(host: str) -> str:
    if not host.isascii():
        return "is not in the form browsers ask for; write its ASCII form, which begins with xn--"
    if "*" in host:
        return "has a * where none can be; write *.example.com for all names below, or * for every host"
    return "is no host; write a name, an address or a network, such as example.com or 10.0.0.0/8"


def _port(text: str, port: str) -> int | None:
    if port == "*":
        return None
    if not 0 < int(port) < 65536:
        raise _wrong(text, "has a port that does not exist; write one from 1 to 65535")
    return int(port)


def _network(text: str, rest: str) -> IPNetwork | None:
    """Return the network that an entry denotes, or None if it is no network."""
    if not re.fullmatch(r"[0-9a-f:.]+/[0-9]{1,3}", rest):
        return None
    try:
        return unmap_network(ip_network(rest))
    except ValueError as error:
        if "host bits" in str(error):
            right = ip_network(rest, strict=False)
            raise _wrong(text, f"is no network; write {right}") from None
        problem = "is no network; write one such as 10.0.0.0/8 or fd00::/8"
        raise _wrong(text, problem) from None


def _validate_entry(text: str) -> str:
    _parse(text)
    return text


HostEntry = Annotated[str, AfterValidator(_validate_entry)]
"""The type of an entry of `allow` and `block`."""


class NetworkPolicy(BaseModel):
    """The hosts that may be reached. `block` wins over `allow`; if `allow` has entries, only they may be reached.

    Private, loopback, link-local, metadata and other special addresses are out of reach unless `private` is set or `allow`
    lists the address or its network. A name opens none of them, `localhost` included: the owner of a name decides where it
    leads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: list[HostEntry] = Field(default_factory=list[HostEntry])
    block: list[HostEntry] = Field(default_factory=list[HostEntry])
    hosts: tuple[HostEntry, ...] | None = None
    """If it is no None, only these may be reached of those that are allowed else: the hosts of the caller."""
    private: bool = False
    bytes_per_second: Annotated[int, Field(gt=0)] | None = None
    """The rate of all connections together, in both directions."""
    response_bytes: Annotated[int, Field(gt=0)] | None = None
    """The largest response in bytes. A pause of some seconds counts as the end of a response."""

    _allow: _Entries = PrivateAttr()
    _block: _Entries = PrivateAttr()
    _hosts: _Entries | None = PrivateAttr(None)

    def model_post_init(self, context: Any, /) -> None:
        self._allow = _Entries(self.allow)
        self._block = _Entries(self.block)
        self._hosts = None if self.hosts is None else _Entries(list(self.hosts))

    def limited_to(self, hosts: tuple[str, ...] | None) -> NetworkPolicy:
        """Return this policy with other hosts of the caller."""
        return NetworkPolicy.model_validate({**self.model_dump(), "hosts": hosts})

    @property
    def has_schemes(self) -> bool:
        """Whether entries name schemes, so that targets can be judged only when it is known if they use TLS."""
        lists = (self._allow, self._block, self._hosts)
        return any(entries is not None and entries.has_schemes for entries in lists)

    def name_refusal(self, target: Target) -> str | None:
        """Return why a host is refused whatever its addresses are, or None. Called before the name is resolved."""
        name = str(target)
        if target.is_secure is not None and self.has_schemes:
            name = f"{'https' if target.is_secure else 'http'}://{target}"
        if self._block.lists_host(target):
            return f"{name} is blocked"
        if self.allow and not self._allow.lists_host(target):
            return f"{name} is not among the allowed hosts"
        if self._hosts is not None and not self._hosts.lists_host(target):
            return f"{name} is not among the hosts that the caller may reach"
        return None

    def address_refusal(self, target: Target, address: IPAddress) -> str | None:
        """Return why one address of a host is refused, or None. Called for each address before it is connected."""
        if self._block.blocks(target, address):
            return f"{address} is blocked"
        kind = special(address)
        if kind is None or self.private or self._allow.covers(target, address):
            return None
        article = "an" if kind == "unspecified" else "a"
        return f"{address} is {article} {kind} address, which `allow` does not list"


BROWSER_ARGS: Final = (
    # WebRTC sends UDP past any proxy. The headless shell reads the first flag, full browsers the second.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    # Only the proxy resolves names: a lookup by the browser, as for STUN hosts, would reveal them to a name server.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""The flags that keep a browser from bypassing the proxy."""

_IGNORED: Final = "".join(map(chr, range(33)))
"""The characters that a browser strips from both ends of a URL."""

_ALLOWED_PAGES: Final = ("about:blank", "about:srcdoc", "chrome-error://chromewebdata/")

LOCAL_SCHEMES: Final = ("file", "filesystem", "ftp", "content", "externalfile", "view-source")
"""Schemes that a browser reads from its machine, to block by URL patterns of the DevTools protocol.

The browser's own pages are not subject to those patterns.
"""

OTHER_SCHEMES: Final = re.compile(r"^(?!(?:https?|wss?|data|blob|about):)", re.IGNORECASE)
"""URLs that a route has to abort in a browser that Statehold did not start.

A pattern is matched by the driver; a function would be called for every request.
"""


def scheme_allowed(url: str) -> bool:
    """Return whether the scheme of a URL may be requested or shown. Check arguments, and `page.url` after each call.

    Allowed: http, https, ws and wss, which the proxy checks; about:blank and about:srcdoc, the only about pages that are
    no chrome:// pages; the error page of a failed navigation; data: and blob:, which hold content made by a page and reach
    nothing without the proxy. All others are refused: file:, view-source:, chrome:, devtools:, filesystem:, javascript:.
    """
    # Remove the characters that a browser ignores in a URL: they must not hide a scheme.
    text = re.sub(r"[\t\n\r]", "", url).strip(_IGNORED).lower()
    scheme, colon, rest = text.partition(":")
    if not text:
        return True
    if re.split(r"[?#]", text, maxsplit=1)[0] in _ALLOWED_PAGES:
        return True
    if scheme == "blob":
        return rest.startswith(("http://", "https://", "null/"))
    return bool(colon) and (scheme in _DEFAULT_PORTS or scheme == "data")


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
            raise _wrong_proxy("is no address of a proxy; write http://host:port") from None
        if parts.scheme != "http":
            raise _wrong_proxy(
                "is no HTTP proxy; write http://host:port, other kinds cannot be used"
            )
        if not host or port == 0 or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise _wrong_proxy("is no address of a proxy; write http://host:port")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = b"Basic " + b64encode(pair.encode())
        return UpstreamProxy(host, port or 80, authorization)

    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.authorization is None:
            return []
        return [(b"Proxy-Authorization", self.authorization)]


def _wrong_proxy(problem: str) -> PydanticCustomError:
    return PydanticCustomError("statehold", "{message}", {"message": problem})
