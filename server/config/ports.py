"""The settings of HTTP, and of nodes on several machines that share one PostgreSQL database."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...access.config.types import Bytes, Count, Names, Section, SomeSeconds, not_bool, split


class TlsSettings(Section):
    """The certificate with which `statehold serve` speaks TLS."""

    certificate: Path = Field(
        description="File with the certificate of the server and those that lead to its authority, PEM. It and `key` are "
        "read again when they change.",
    )
    key: Path = Field(
        description="File with the key, PEM, that only this user may read, or, of root, its group."
    )


class HttpSettings(Section):
    """The resources of `statehold serve` that clients may use."""

    connections: Annotated[Count, Field(ge=1)] = Field(
        default=10_000,
        description="Client connections at a time; then the longest idle one of the address with the most is closed.",
    )
    connections_per_address: Count = Field(
        default=0,
        description="Client connections of one address, or of one /64 of IPv6; behind `trusted_proxies`, of one client. "
        "0: half of `connections`. Raise it behind any other proxy.",
    )
    reserved_files: Count = Field(
        default=512,
        description="Open files kept for the store and the sessions; at most half of what the system allows.",
    )
    body_seconds: SomeSeconds = Field(
        default=60.0,
        description="Longest time the body of a request may take; then its connection is closed.",
    )
    write_seconds: SomeSeconds = Field(
        default=60.0,
        description="Longest time a client may read nothing of an answer; then its connection is closed.",
    )
    unsent_bytes: Annotated[Bytes, Field(ge=1 << 20)] = Field(
        default=64 << 20,
        description="Bytes of answers that one caller may leave unread; the connection that exceeds it is closed.",
    )
    unsent_bytes_total: Annotated[Bytes, Field(ge=1 << 20)] = Field(
        default=256 << 20,
        description="Bytes of answers that all callers together may leave unread; then the connection with the most is "
        "closed.",
    )
    body_bytes_total: Annotated[Bytes, Field(ge=8 << 20)] = Field(
        default=256 << 20,
        description="Bytes of the bodies of all unanswered requests, for one caller three times what it leaves to others; "
        "beyond it 503.",
    )
    transport_sessions: Annotated[Count, Field(ge=1)] = Field(
        default=10_000,
        description="Transport sessions (`Mcp-Session-Id`) of older clients; then the longest idle one of the caller with "
        "the most ends.",
    )
    transport_sessions_per_principal: Annotated[Count, Field(ge=1)] = Field(
        default=1000,
        description="Transport sessions of one caller. At the limit its longest idle one ends.",
    )
    replay_events: Count = Field(
        default=256,
        description="Events of a transport session kept for a client that reconnects with `Last-Event-ID`. 0: none.",
    )
    replay_bytes: Bytes = Field(
        default=8 << 20,
        description="Bytes of such events that are kept of all transport sessions of one caller.",
    )
    replay_bytes_total: Bytes = Field(
        default=64 << 20, description="Bytes of such events that are kept in total."
    )


KEY_LENGTH: Final = 32
"""The fewest characters of a key."""


class ClusterSettings(Section):
    """Nodes on several machines. Each has its own data folder; all have the same `store.url`, on PostgreSQL."""

    enabled: bool = Field(
        default=False,
        description="Be a node among others of the same PostgreSQL database. Needs `store.url` and `keys`.",
    )
    keys: Annotated[
        list[Annotated[SecretStr, Field(min_length=KEY_LENGTH)]], BeforeValidator(split)
    ] = Field(
        default_factory=list[SecretStr],
        description="Secrets of at least 32 characters with which the nodes sign requests; the first signs, all are "
        "accepted. Write each as `${NAME}`.",
    )
    keys_file: Path | None = Field(
        default=None,
        description="File of such secrets, one on each line, that only this user may read.",
    )
    listen: str = Field(
        default="127.0.0.1:0",
        description="Address and port for the requests of the other nodes, which alone may reach it. Port 0: any free "
        "one.",
    )
    advertise: str = Field(
        default="",
        description="Address, or address and port, at which the other nodes reach `listen`. Default: that of `listen`, or "
        "of this machine on the way to the database.",
    )
    certificate: Path | None = Field(
        default=None,
        description="File with the certificate of this node, PEM. With `key` and `authority`, the nodes speak TLS with "
        "each other.",
    )
    key: Path | None = Field(
        default=None,
        description="File with the key of `certificate`, PEM. Only this user may be able to read it.",
    )
    authority: Path | None = Field(
        default=None,
        description="File with the certificate of the authority of the nodes, PEM: a program with a certificate of it may "
        "connect.",
    )
    networks: Names = Field(
        default_factory=lambda: [
            *("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
        ],
        description="Networks of the nodes. A node outside of them is not connected to.",
    )
    lease_seconds: Annotated[float, BeforeValidator(not_bool), Field(ge=2, le=300)] = Field(
        default=10.0,
        description="Time without a sign of life after which other nodes take over the sessions of a node. The same on "
        "all nodes.",
    )
    capacity: Count | None = Field(
        default=None,
        description="Sessions that this node takes on. 0: none, it only passes requests on. Default: "
        "`limits.live_sessions`.",
    )

    @field_validator("networks")
    @classmethod
    def _check_networks(cls, networks: list[str]) -> list[str]:
        for network in networks:
            try:
                ip_network(network)
            except ValueError:
                raise PydanticCustomError(
                    "network", "Input should be networks such as 10.0.0.0/8"
                ) from None
        return networks

    @model_validator(mode="after")
    def _check_certificates(self) -> Self:
        files = (self.certificate, self.key, self.authority)
        if any(files) and not all(files):
            raise PydanticCustomError(
                "certificates", "certificate, key and authority should be set together"
            )
        return self

    def admits(self, address: str) -> bool:
        """Whether a numeric address is in one of the networks of the nodes."""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in ip_network(network) for network in self.networks)
