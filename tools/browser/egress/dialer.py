"""Connections to sites. The policy checks the name, then each address it resolves to; only a checked address is opened."""

from __future__ import annotations

import errno
from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import anyio
import anyio.lowlevel
import h11
from anyio.abc import SocketStream

from .addresses import LOOPBACK, IPAddress, is_here, meanings
from .network_policy import Target, UpstreamProxy
from .resolver import NotFound, Resolver, is_loopback
from .session_access import EgressAccess, not_allowed, unreachable
from .tunnel import BROKEN, close, keep_alive

HTTPS: Final = 443
_NEXT_SECONDS: Final = 0.25
"""Seconds for which one address is tried alone before the next is tried in parallel."""


@dataclass(frozen=True, slots=True)
class SiteConnection:
    """A connection to a site, maybe through the proxy of the user's network."""

    stream: SocketStream
    rest: bytes = b""
    """The bytes of the site that were read already."""
    proxy: UpstreamProxy | None = None
    """The proxy that it leads to, if that has to be asked for the site yet: by open_tunnel() or in each request."""


class EgressDialer:
    """Opens connections to sites. No other class does, so every connection has passed the checks here."""

    def __init__(
        self, resolver: Resolver, *, seconds: float, own_ports: Container[int] = ()
    ) -> None:
        """`own_ports`: ports of this machine that this process serves. They are never reached, whatever a policy says."""
        self._resolver = resolver
        self._seconds = seconds
        self._own_ports = own_ports

    async def dial(self, target: Target, access: EgressAccess) -> SiteConnection:
        """Open a connection. If the policy names schemes, it must be known whether the target uses TLS.

        Raises:
            Refused: The policy forbids it, or the site does not answer.
        """
        reason = access.refusal(target)
        if reason is not None:
            raise not_allowed(target, reason)
        if access.upstream is not None:
            for address in _literal_addresses(target):
                self._allowed_addresses(target, [address], access)
            return await self._connect_through(access.upstream, target)
        addresses = await self._addresses(target, access)
        allowed_addresses = self._allowed_addresses(target, addresses, access)
        return SiteConnection(await self._connect(target, allowed_addresses))

    def _allowed_addresses(
        self, target: Target, addresses: Sequence[IPAddress], access: EgressAccess
    ) -> Sequence[IPAddress]:
        """Return the addresses that may be reached. A refused one is never tried, even if the name has allowed ones."""
        reasons = {
            address: access.policy.address_refusal(target, address)
            or self._own_port_refusal(target, address)
            for address in addresses
        }
        allowed_addresses = [address for address, reason in reasons.items() if reason is None]
        if not allowed_addresses:
            reason = next(iter(reasons.values()))
            prefix = "" if target.address else f"{target.host} leads to "
            raise not_allowed(target, f"{prefix}{reason}")
        return allowed_addresses

    def _own_port_refusal(self, target: Target, address: IPAddress) -> str | None:
        if target.port in self._own_ports and any(map(is_here, meanings(address))):
            return f"{address} at port {target.port} is Statehold itself"
        return None

    async def _addresses(self, target: Target, access: EgressAccess) -> Sequence[IPAddress]:
        if target.address is not None:
            return [target.address]
        try:
            async with access.lookups:
                return await self._resolver.addresses(target.host, access.owner)
        except NotFound:
            raise unreachable(target, f"the name {target.host} has no address") from None

    async def _connect(self, target: Target, addresses: Sequence[IPAddress]) -> SocketStream:
        try:
            with anyio.fail_after(self._seconds):
                stream = await _fastest([str(one) for one in addresses], target.port)
        except TimeoutError:
            raise unreachable(target, f"{target} did not answer in {self._seconds:g} s") from None
        except OSError as error:
            raise unreachable(target, f"{target} {_describe_failure(error)}") from None
        return stream

    async def _connect_through(self, proxy: UpstreamProxy, target: Target) -> SiteConnection:
        """Connect to a proxy. It opens the port of HTTPS at once; for others it must be known first whether they use TLS.

        Many proxies open tunnels to no other port.
        """
        with self._explained(target):
            stream = await _fastest([proxy.host], proxy.port)
        connection = SiteConnection(stream, proxy=proxy)
        return await self.open_tunnel(target, connection) if target.port == HTTPS else connection

    async def open_tunnel(self, target: Target, connection: SiteConnection) -> SiteConnection:
        """Ask the proxy of a connection for a tunnel. The connection is closed if that fails.

        Raises:
            Refused: The proxy opens none.
        """
        assert connection.proxy is not None
        try:
            with self._explained(target):
                rest = await _open_tunnel(connection.stream, connection.proxy, target)
        except BaseException:
            await close(connection.stream)
            raise
        return replace(connection, rest=rest, proxy=None)

    @contextmanager
    def _explained(self, target: Target) -> Generator[None]:
        """Bound the time of the block, and raise its failures as those of the proxy upstream."""
        try:
            with anyio.fail_after(self._seconds):
                yield
        except TimeoutError:
            reason = f"the proxy upstream did not open {target} in {self._seconds:g} s"
            raise unreachable(target, reason) from None
        except (OSError, h11.RemoteProtocolError, *BROKEN):
            raise unreachable(target, "the proxy upstream does not answer") from None


def _literal_addresses(target: Target) -> Sequence[IPAddress]:
    """Return the addresses of a host that need no resolver, so that they can be refused before an upstream proxy dials."""
    if target.address is not None:
        return [target.address]
    return LOOPBACK if is_loopback(target.host) else ()


async def _fastest(hosts: Sequence[str], port: int) -> SocketStream:
    """Return a connection to the first host that answers; each is tried when the one before failed or is slow.

    Raises:
        OSError: None answers; the first failure is raised.
    """
    winner: SocketStream | None = None
    failures: list[OSError] = []

    async def attempt(host: str, failure_event: anyio.Event) -> None:
        nonlocal winner
        try:
            stream = await anyio.connect_tcp(host, port)
        except OSError as error:
            failures.append(error)
            failure_event.set()
            return
        if winner is not None:
            await close(stream)
            return
        winner = stream
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for host in hosts:
                failure_event = anyio.Event()
                tasks.start_soon(attempt, host, failure_event)
                with anyio.move_on_after(_NEXT_SECONDS):
                    await failure_event.wait()
        # If a deadline passed meanwhile, raise here, where the connection is closed.
        await anyio.lowlevel.checkpoint_if_cancelled()
    except BaseException:
        if winner is not None:
            await close(winner)
        raise
    if winner is None:
        raise failures[0]
    keep_alive(winner)
    return winner


async def _open_tunnel(stream: SocketStream, proxy: UpstreamProxy, target: Target) -> bytes:
    """Ask a proxy for a tunnel. Return the bytes that followed its answer."""
    http = h11.Connection(h11.CLIENT)
    headers = [(b"Host", target.authority.encode()), *proxy.headers()]
    request = h11.Request(method=b"CONNECT", target=target.authority, headers=headers)
    await stream.send(http.send(request) or b"")
    http.send(h11.EndOfMessage())
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive())
        elif isinstance(event, h11.Response):
            if 200 <= event.status_code < 300:
                return http.trailing_data[0]
            reason = f"the proxy upstream refused {target} with status {event.status_code}"
            raise unreachable(target, reason)
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("no answer to CONNECT")


def _describe_failure(error: OSError) -> str:
    was_refused = isinstance(error.__cause__, ConnectionRefusedError)
    if was_refused or error.errno == errno.ECONNREFUSED:
        return "refuses connections"
    return "cannot be reached"
