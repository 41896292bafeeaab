"""The negotiation of the protocol era with an upstream, and the metadata of requests in that era.

The era `legacy` is the protocol with the initialize handshake, up to 2025-11-25; `modern` is 2026-07-28.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

import anyio
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from ...sessions.json_codec import JSON
from .errors import UpstreamMisbehaved, UpstreamRefused
from .transports.http_errors import HttpRefused

Era: TypeAlias = Literal["legacy", "modern"]
SendRequest: TypeAlias = Callable[[str, JSON, dict[str, str]], Awaitable[JSON]]
"""Sends a request that must not be cancelled: method, params, headers."""

CLIENT_INFO: Final[JSON] = {"name": "statehold", "version": importlib.metadata.version("statehold")}

OFFERED_CAPABILITIES: Final[JSON] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}
"""The client capabilities declared to a legacy upstream. The handshake declares them before there is a caller."""

UNRELAYED_EXTENSIONS: Final = ("io.modelcontextprotocol/tasks",)
"""Extensions that need further requests which Statehold does not pass on."""

SECOND_TRY_SECONDS: Final = 10.0
"""Seconds to wait for an answer to a modern request when the legacy era is still to be tried."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An upstream as it introduced itself."""

    version: str
    modern: bool
    info: JSON = field(default_factory=dict[str, Any])
    capabilities: JSON = field(default_factory=dict[str, Any])
    instructions: str | None = None

    def to_json(self) -> JSON:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(fields: JSON) -> Peer:
        return Peer(**fields)

    @property
    def era(self) -> Era:
        return "modern" if self.modern else "legacy"

    def meta(self, capabilities: Mapping[str, Any]) -> JSON:
        """Return the `_meta` members that a request to this peer needs."""
        return _envelope(self.version, relayable_capabilities(capabilities)) if self.modern else {}

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTTP headers of a request."""
        if not self.modern:
            return {MCP_PROTOCOL_VERSION_HEADER: self.version}
        return _modern_headers(self.version, method, params)


def relayable_capabilities(capabilities: Mapping[str, Any]) -> JSON:
    """Return a caller's capabilities without UNRELAYED_EXTENSIONS."""
    extensions: object = capabilities.get("extensions")
    if not isinstance(extensions, dict) or not any(
        name in extensions for name in UNRELAYED_EXTENSIONS
    ):
        return dict(capabilities)
    fields = cast(JSON, extensions)
    relayable = {name: value for name, value in fields.items() if name not in UNRELAYED_EXTENSIONS}
    return {**capabilities, "extensions": relayable}


def _envelope(version: str, capabilities: JSON) -> JSON:
    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: CLIENT_INFO,
        CLIENT_CAPABILITIES_META_KEY: capabilities,
    }


def _modern_headers(version: str, method: str, params: Mapping[str, Any]) -> dict[str, str]:
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
    key = NAME_BEARING_METHODS.get(method)
    if key is not None and isinstance(name := params.get(key), str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    return headers


async def negotiate(send: SendRequest, eras: Sequence[Era], *, service: str) -> Peer:
    """Introduce ourselves in the first of `eras` that the upstream accepts.

    The caller still has to send `notifications/initialized` to a legacy peer.

    Raises:
        UpstreamRefused, HttpRefused: The upstream refused all eras; this is the error of the first one.
        UpstreamMisbehaved: The answer is malformed.
    """
    first_error: Exception | None = None
    for number, era in enumerate(eras, 1):
        introduce = _initialize if era == "legacy" else _discover
        is_guess = era == "modern" and number < len(eras)
        try:
            with anyio.fail_after(SECOND_TRY_SECONDS if is_guess else None):
                return await introduce(send, service)
        except (UpstreamRefused, HttpRefused, UpstreamMisbehaved, TimeoutError) as error:
            if first_error is None or isinstance(first_error, TimeoutError):
                first_error = error
    assert first_error is not None
    raise first_error


async def _initialize(send: SendRequest, service: str) -> Peer:
    params: JSON = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": OFFERED_CAPABILITIES,
        "clientInfo": CLIENT_INFO,
    }
    answer = await send("initialize", params, {})
    version = answer.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise UpstreamMisbehaved(service, f"it speaks protocol version {str(version)[:40]!r}")
    return _peer(answer, str(version), answer.get("serverInfo"), modern=False)


async def _discover(send: SendRequest, service: str) -> Peer:
    version = LATEST_MODERN_VERSION
    params: JSON = {"_meta": _envelope(version, {})}
    answer = await send("server/discover", params, _modern_headers(version, "server/discover", {}))
    value: object = answer.get("supportedVersions")
    supported_versions = cast(list[object], value) if isinstance(value, list) else []
    mutual = [
        candidate for candidate in MODERN_PROTOCOL_VERSIONS if candidate in supported_versions
    ]
    if not mutual:
        raise UpstreamMisbehaved(service, "it supports none of our protocol versions")
    return _peer(
        answer, mutual[-1], _dict(answer.get("_meta")).get(SERVER_INFO_META_KEY), modern=True
    )


def _peer(answer: JSON, version: str, info: object, *, modern: bool) -> Peer:
    instructions = answer.get("instructions")
    return Peer(
        version=version,
        modern=modern,
        info=_dict(info),
        capabilities=_dict(answer.get("capabilities")),
        instructions=instructions if isinstance(instructions, str) else None,
    )


def _dict(value: object) -> JSON:
    return cast(JSON, value) if isinstance(value, dict) else {}


__all__ = ["CLIENT_INFO", "SendRequest", "Era", "Peer", "negotiate", "relayable_capabilities"]
