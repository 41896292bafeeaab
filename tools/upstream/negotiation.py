"""The negotiation of the protocol era with an upstream, and the metadata of requests in that era.

The era `legacy` is the protocol with the initialize handshake, up to 2025-11-25; `modern` is 2026-07-28.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
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
    INTERNAL_ERROR,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from ...sessions.errors import ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON
from ...sessions.one_line import without_hidden
from .config import Transport
from .errors import UpstreamMisbehaved, UpstreamRefused, era_remedy
from .transports.http_errors import HttpRefused

Era: TypeAlias = Literal["legacy", "modern"]
SendRequest: TypeAlias = Callable[[str, JSON, dict[str, str]], Awaitable[JSON]]
"""Sends a request that must not be cancelled: method, params, headers."""

CLIENT_INFO: Final[JSON] = {"name": "statehold", "version": importlib.metadata.version("statehold")}

EVENTS: Final = "io.modelcontextprotocol/events"
"""The extension of SEP-3415."""

OFFERED_CAPABILITIES: Final[JSON] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
    "extensions": {
        "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},
        EVENTS: {},
    },
}
"""The capabilities declared where there is no caller: in handshakes and in requests for lists. Callers may have them all."""

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension of SEP-2663. Each caller has it, since tools/upstream/tasks.py follows tasks for them."""

ASK_SECONDS: Final = 3.0
"""Seconds that an upstream of an unknown era has for `server/discover` before it gets `initialize` as well."""

RESTART_SECONDS: Final = 30.0
"""Seconds that are left for a second start when an upstream answers neither introduction."""

_ANSWERS: Final = "it answers server/discover"
_REFUSES: Final = "it refuses server/discover"
_OLDER_CALLER: Final = "its caller speaks the older protocol"
_REFUSALS: Final = (UpstreamRefused, HttpRefused, UpstreamMisbehaved)


@dataclass(frozen=True)
class Peer:
    """An upstream as it introduced itself."""

    version: str
    modern: bool
    info: JSON = field(default_factory=dict[str, Any])
    capabilities: JSON = field(default_factory=dict[str, Any])
    instructions: str | None = None
    era_reason: str = ""
    """Why this era is spoken; empty if the upstream is to be asked again."""

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
        if not self.modern:
            return {}
        declared = _with_tasks(capabilities) if self.has_tasks else dict(capabilities)
        return _envelope(self.version, declared)

    @cached_property
    def has_tasks(self) -> bool:
        """Whether it may answer a tool call with a task; only 2026-07-28 has them."""
        return self.modern and TASKS in _dict(self.capabilities.get("extensions"))

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTTP headers of a request."""
        if not self.modern:
            return {MCP_PROTOCOL_VERSION_HEADER: self.version}
        return _modern_headers(self.version, method, params)


def name_lacking_side(
    error: UpstreamRefused, peer: Peer, declared: Mapping[str, Any], service: str
) -> UpstreamRefused:
    """Return the error for a missing client capability with the name of the side that lacks it: the client or Statehold.

    `declared` are the capabilities of the caller.
    """
    required = _dict(_dict(error.data).get("requiredCapabilities"))
    extensions = _dict(required.get("extensions"))
    if TASKS in extensions and not peer.modern:
        message = f"{service} requires tasks, which the older era lacks: {era_remedy(service)}."
        # The code and the data would tell the client to declare what does not help.
        return UpstreamRefused(INTERNAL_ERROR, message, None, error.refusal)
    if peer.has_tasks:
        declared = _with_tasks(declared)
    declared_extensions = _dict(declared.get("extensions"))
    lacking = [name for name in required if name != "extensions" and name not in declared]
    lacking += [name for name in extensions if name not in declared_extensions]
    if not lacking:
        return error
    return error.with_message(f"{error.message} (the client does not declare {', '.join(lacking)})")


def require_answerable(result: JSON, declared: Mapping[str, Any]) -> None:
    """Refuse a question that the caller did not declare to answer, as a question of the older era is refused.

    Raises:
        UpstreamRefused: The result asks such a question.
    """
    if result.get("resultType") != "input_required":
        return
    for request in _dict(result.get("inputRequests")).values():
        method = str(_dict(request).get("method"))
        if method.partition("/")[0] not in declared:
            message = f"The caller cannot answer {method}."
            raise UpstreamRefused(MISSING_REQUIRED_CLIENT_CAPABILITY, message)


def _with_tasks(capabilities: Mapping[str, Any]) -> JSON:
    return {**capabilities, "extensions": {**_dict(capabilities.get("extensions")), TASKS: {}}}


def _envelope(version: str, capabilities: JSON) -> JSON:
    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: CLIENT_INFO,
        CLIENT_CAPABILITIES_META_KEY: capabilities,
    }


def _modern_headers(version: str, method: str, params: Mapping[str, Any]) -> dict[str, str]:
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
    key = "taskId" if method.startswith("tasks/") else NAME_BEARING_METHODS.get(method)
    if key is not None and isinstance(name := params.get(key), str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    return headers


@dataclass(frozen=True, slots=True)
class EraPlan:
    """The eras to try in a handshake, and the reason for their order. Without a reason, the upstream is asked."""

    eras: tuple[Era, ...] = ("legacy", "modern")
    reason: str = ""

    @staticmethod
    def of(peer: Peer) -> EraPlan:
        """Return the plan for an upstream that was `peer` before. Its answer belongs to its configuration."""
        if not peer.era_reason:
            return EraPlan()
        return EraPlan((peer.era, "legacy" if peer.modern else "modern"), peer.era_reason)

    def after(self, failure: ServiceUnavailable) -> EraPlan | None:
        """Return the plan for a fresh connection after a failed one, None if nothing is left to be tried."""
        if isinstance(failure, EraUndecided):
            return failure.next_plan
        if not self.reason:
            return EraPlan(("legacy",), "it ends at server/discover")
        return replace(self, eras=self.eras[1:]) if self.eras[1:] else None


class EraChoice:
    """The plan of the next handshake with one upstream, by its configuration and by what earlier connections found."""

    def __init__(self, configured: str, *, shared: bool) -> None:
        """`shared`: all sessions use one connection."""
        self._configured = configured
        self._shared = shared
        self._known = EraPlan()
        self._has_tasks = False

    def plan(self, transport: Transport, *, older_caller: bool) -> EraPlan:
        """Return the plan. `older_caller`: it is for a caller of the older era, who is served as a direct client.

        If the upstream has tasks, which only the newer era knows, every caller gets that era.
        """
        if self._configured != "auto":
            return EraPlan((cast("Era", self._configured),), "the configuration sets it")
        if transport == "sse":
            return EraPlan(reason="its state may hang on its connection over HTTP+SSE")
        if transport == "stdio" and self._shared:
            # No session can have its connection opened again in the era that a tool needs for its questions.
            return EraPlan(reason="all sessions share its connection")
        if transport == "stdio" and older_caller and not self._has_tasks:
            return EraPlan(reason=_OLDER_CALLER)
        return self._known

    def note(self, peer: Peer) -> None:
        if peer.era_reason != _OLDER_CALLER:
            self._known, self._has_tasks = EraPlan.of(peer), peer.has_tasks

    def forget(self) -> None:
        """Have the upstream asked at the next handshake."""
        self._known = EraPlan()

    def prefer_older(self) -> bool:
        """Speak the older era from now on. Return False if the configuration does not leave the choice."""
        self._known = EraPlan(reason="one of its tools asks by the older protocol")
        self._has_tasks = False
        return self._configured == "auto"


class EraUndecided(ServiceUnavailable):
    """Raised when a connection is of no use after both introductions. `next_plan` is for a fresh one."""

    def __init__(self, service: str, era: Era, reason: str) -> None:
        super().__init__(f"{service} has to be opened again, because {reason}.")
        self.next_plan = EraPlan((era,), reason)


async def negotiate(
    send: SendRequest,
    plan: EraPlan,
    *,
    service: str,
    seconds: float,
    has_session: Callable[[], bool] | None,
) -> Peer:
    """Introduce ourselves in the first era of a plan that the upstream accepts, or in the best one if it is to be asked.

    `seconds` is the time of the whole connection attempt. `has_session` tells over Streamable HTTP whether the upstream gave
    a session; None where the connection is one. The caller still has to send `notifications/initialized` to a legacy peer.

    Raises:
        UpstreamRefused, HttpRefused: The upstream refused all eras; this is the error of the first one, or the one that asks
            for a login.
        UpstreamMisbehaved: The answer is malformed.
        EraUndecided: A fresh connection is needed.
    """
    if not plan.reason and has_session is None:
        return await _ask_over_pipe(send, service, seconds)
    first_error: SessionError | None = None
    for era in plan.eras:
        introduce = _initialize if era == "legacy" else _discover
        try:
            peer = await introduce(send, service)
        except _REFUSALS as error:
            # A server that allows one introduction without a login may refuse it for its era.
            asks_login = isinstance(error, HttpRefused) and error.refusal.status == 401
            first_error = error if asks_login else first_error or error
            continue
        if not plan.reason and not peer.modern and has_session is not None:
            if has_session():
                return replace(peer, era_reason="it gives a session over HTTP")
            return await _ask_over_http(send, service, seconds, peer)
        if first_error is None:
            return replace(peer, era_reason=plan.reason)
        return replace(peer, era_reason="it refuses initialize" if peer.modern else _REFUSES)
    assert first_error is not None
    raise first_error


async def _ask_over_pipe(send: SendRequest, service: str, seconds: float) -> Peer:
    """Send `server/discover`, and `initialize` too if that is refused or has no answer after some seconds.

    A server that is still starting reads them in this order.
    """
    ask_seconds = min(ASK_SECONDS, seconds / 4)
    discovery, handshake = _Attempt(_discover), _Attempt(_initialize)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.run, send, service)
        await discovery.wait(ask_seconds)
        if discovery.peer is None and not discovery.ended_connection:
            tasks.start_soon(handshake.run, send, service)
            await handshake.wait(max(seconds / 2, seconds - RESTART_SECONDS) - ask_seconds)
            if handshake.error is not None:
                await discovery.wait(ask_seconds)
        tasks.cancel_scope.cancel()
    for attempt in (discovery, handshake):
        if attempt.ended_connection:
            assert attempt.error is not None
            raise attempt.error
    if handshake.peer is None:
        if discovery.peer is not None:
            return replace(discovery.peer, era_reason=_ANSWERS)
        raise EraUndecided(service, "legacy", "it takes no initialize after server/discover")
    if discovery.peer is not None:
        # Its process may speak either era from now on.
        raise EraUndecided(service, "modern", _ANSWERS)
    silent = "it does not answer server/discover"
    return replace(handshake.peer, era_reason=silent if discovery.error is None else _REFUSES)


async def _ask_over_http(send: SendRequest, service: str, seconds: float, legacy: Peer) -> Peer:
    """Return the peer of `server/discover`, or `legacy` if the upstream does not answer it."""
    discovery = _Attempt(_discover)
    with anyio.move_on_after(min(ASK_SECONDS, seconds / 4)):
        await discovery.run(send, service)
    if discovery.ended_connection:
        assert discovery.error is not None
        raise discovery.error
    if discovery.peer is None:
        return replace(legacy, era_reason=_REFUSES)
    return replace(discovery.peer, era_reason=f"{_ANSWERS}, and gives no session over HTTP")


class _Attempt:
    """One introduction, which may run beside another."""

    def __init__(self, introduce: Callable[[SendRequest, str], Awaitable[Peer]]) -> None:
        self._introduce = introduce
        self._ended = anyio.Event()
        self.peer: Peer | None = None
        self.error: SessionError | None = None

    async def run(self, send: SendRequest, service: str) -> None:
        try:
            self.peer = await self._introduce(send, service)
        except SessionError as error:
            self.error = error
        self._ended.set()

    async def wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._ended.wait()

    @property
    def ended_connection(self) -> bool:
        return self.error is not None and not isinstance(self.error, _REFUSALS)


async def _initialize(send: SendRequest, service: str) -> Peer:
    params: JSON = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": OFFERED_CAPABILITIES,
        "clientInfo": CLIENT_INFO,
    }
    # A server of the newer revision expects the header of every request, also of one that it refuses.
    answer = await send("initialize", params, {MCP_METHOD_HEADER: "initialize"})
    version = answer.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise UpstreamMisbehaved(service, f"it speaks protocol version {str(version)[:40]!r}")
    return _peer(answer, str(version), answer.get("serverInfo"), modern=False)


async def _discover(send: SendRequest, service: str) -> Peer:
    try:
        answer = await _send_discover(send, LATEST_MODERN_VERSION)
    except UpstreamRefused as error:
        version = _mutual_version(_dict(error.data).get("supported"))
        if error.rpc_code != UNSUPPORTED_PROTOCOL_VERSION or version is None:
            raise
        answer = await _send_discover(send, version)
    version = _mutual_version(answer.get("supportedVersions"))
    if version is None:
        raise UpstreamMisbehaved(service, "it supports none of our protocol versions")
    return _peer(answer, version, _dict(answer.get("_meta")).get(SERVER_INFO_META_KEY), modern=True)


async def _send_discover(send: SendRequest, version: str) -> JSON:
    params: JSON = {"_meta": _envelope(version, _with_tasks(OFFERED_CAPABILITIES))}
    return await send("server/discover", params, _modern_headers(version, "server/discover", {}))


def _mutual_version(supported: object) -> str | None:
    """Return the newest of our modern versions in the list of an upstream."""
    versions = cast(list[object], supported) if isinstance(supported, list) else []
    mutual = [version for version in MODERN_PROTOCOL_VERSIONS if version in versions]
    return mutual[-1] if mutual else None


def _peer(answer: JSON, version: str, info: object, *, modern: bool) -> Peer:
    instructions = answer.get("instructions")
    return Peer(
        version=version,
        modern=modern,
        info=_dict(info),
        capabilities=_dict(answer.get("capabilities")),
        instructions=without_hidden(instructions) if isinstance(instructions, str) else None,
    )


def _dict(value: object) -> JSON:
    return cast(JSON, value) if isinstance(value, dict) else {}
