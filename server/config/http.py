"""The HTTP server: its certificate, and its bounds of connections, bodies, unread answers, transport sessions and replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from ...access.config.types import Bytes, Count, Section, SomeSeconds


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
