"""One configured upstream: any MCP server as a service of sessions."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

import anyio
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from ...sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable, SessionError
from ...sessions.services import JSON, PausePolicy, Restored, SessionView, Snapshot, ToolSpec
from . import recipe as recipes
from .channel import OpenChannel, configured_secrets
from .config import Recipe, Transport, UpstreamConfig
from .connection import UpstreamConnection
from .era import Era, Peer
from .errors import UpstreamMisbehaved, UpstreamRefused
from .http import http_channel
from .ledger import Ledger
from .places import Place, Places
from .process import ProcessLimits
from .sse import sse_channel
from .stdio import stdio_channel

logger = logging.getLogger("statehold.upstream")

CALL_SECONDS: Final = 300.0
PAGES: Final = 1000
"""After so many pages a list is taken to have no end."""

ERAS: Final[Mapping[str, tuple[Era, ...]]] = {
    "auto": ("legacy", "modern"),
    "legacy": ("legacy",),
    "modern": ("modern",),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """What an upstream said of itself when it was probed."""

    peer: Peer
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """The report of one probe, for `statehold services check`."""

    service: str
    transport: Transport
    ok: bool
    seconds: float
    error: str | None = None
    protocol_version: str | None = None
    server: JSON = field(default_factory=dict[str, Any])
    tools: int = 0


class UpstreamService:
    """An upstream of the configuration. It lives as long as the process and holds nothing open of its own.

    `on_changed` is told when a live connection says that one of its lists changed; refresh() then asks again.
    """

    def __init__(
        self,
        name: str,
        config: UpstreamConfig,
        *,
        data: Path | None = None,
        ledger: Ledger | None = None,
        base: Path | None = None,
        call_seconds: float = CALL_SECONDS,
        limits: ProcessLimits | None = None,
        on_changed: Callable[[UpstreamService, str], None] | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.config_hash = config_hash(config)
        self.transport: Transport = transport_of(config)
        self.pause: PausePolicy = config.pause or ("snapshot" if config.recipe else "keep")
        self.scope: Literal["session", "shared"] = config.scope
        self.concurrency = config.concurrency
        self.eager = config.connect == "eager"
        self.connect_seconds = config.connect_seconds
        self.call_seconds = config.call_seconds or call_seconds
        self.checkpoint_seconds = _checkpoint(config.recipe)
        self.profile: Profile | None = None
        """What the last probe found, None before the first."""
        self._ledger = ledger
        self._base = base
        self._limits = limits
        self._on_changed = on_changed
        self._places = Places(data, name)
        self._needs_folder = _needs_folder(config)
        self._secrets = configured_secrets(config.env, config.headers, config.args, config.url)
        self._eras = ERAS[config.era]
        self._probing = anyio.Lock()
        self._header_maps: dict[str, Mapping[tuple[str, ...], str]] = {}

    def __repr__(self) -> str:
        return f"<UpstreamService {self.name!r} {self.transport}>"

    # What it offers.

    async def tools(self) -> Sequence[ToolSpec]:
        """Return its tools, asking a throw-away connection the first time. One probe serves all who wait for it.

        Raises:
            ServiceUnavailable: it cannot be opened or does not list its tools.
        """
        if self.profile is None:
            async with self._probing:
                if self.profile is None:
                    await self._probe()
        return self.profile.tools if self.profile is not None else ()

    async def refresh(self) -> bool:
        """Probe again. Returns whether the tools changed; raises as tools() does and then keeps the old ones."""
        async with self._probing:
            before = self.profile
            await self._probe()
            return before is None or self.profile is None or before.tools != self.profile.tools

    def repeatable(self, tool: str) -> bool:
        known = self.profile.tools if self.profile is not None else ()
        return any(spec.name == tool and spec.repeatable for spec in known)

    async def check(self) -> Check:
        """Probe and report, without raising."""
        began = time.monotonic()
        try:
            await self.refresh()
        except SessionError as error:
            passed = time.monotonic() - began
            return Check(self.name, self.transport, False, passed, error=error.message)
        assert self.profile is not None
        return Check(
            self.name,
            self.transport,
            True,
            time.monotonic() - began,
            protocol_version=self.profile.peer.version,
            server=self.profile.peer.info,
            tools=len(self.profile.tools),
        )

    async def _probe(self) -> None:
        probe = SessionView(
            id=f"probe_{secrets.token_hex(4)}", name=None, namespace="", owner="", generation=1
        )
        try:
            async with self._throw_away(probe) as connection:
                with anyio.fail_after(self.connect_seconds):
                    tools = await _listed_tools(connection)
                self.profile = Profile(connection.peer, tools)
        except TimeoutError:
            raise ServiceUnavailable(
                f"{self.name} did not list its tools within {self.connect_seconds:g} seconds."
            ) from None
        except (OutcomeUnknown, ConnectionLost, UpstreamRefused) as error:
            raise ServiceUnavailable(
                f"{self.name} did not list its tools: {error.message}"
            ) from error
        finally:
            await self._places.forget(probe.id)
        self._header_maps = {spec.name: _header_map(spec) for spec in self.profile.tools}

    @asynccontextmanager
    async def _throw_away(self, view: SessionView) -> AsyncGenerator[UpstreamConnection]:
        connection = await self._connected(await self._place(view))
        try:
            yield connection
        finally:
            await connection.aclose()

    # Its connections.

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> UpstreamConnection:
        """Open a connection for a session and give it back what the snapshot holds.

        Raises:
            ServiceUnavailable: with the cause and the upstream's last words; nothing is left behind.
        """
        place = await self._place(session)
        connection = await self._connected(place)
        try:
            connection.opened = await self._restored(session, snapshot, connection, place)
        except (OutcomeUnknown, ConnectionLost) as error:
            await connection.aclose()
            reason = connection.reason or error.message
            raise ServiceUnavailable(f"{self.name} died while restoring: {reason}.") from error
        except BaseException:
            await connection.aclose()
            raise
        recipe, folder = self.config.recipe, place.folder
        if recipe is not None and recipe.save and folder is not None:
            connection.saver = partial(recipes.save, recipe, connection, folder)
        return connection

    async def _restored(
        self,
        session: SessionView,
        snapshot: Snapshot | None,
        connection: UpstreamConnection,
        place: Place,
    ) -> Restored:
        recipe = self.config.recipe
        if snapshot is not None and recipe is not None and place.folder is not None:
            return await recipes.restore(recipe, connection, place.folder, snapshot)
        return recipes.nothing(recipe) if session.generation > 1 else Restored()

    async def forget(self, session_id: str) -> None:
        """Remove the folder of a session that was purged."""
        await self._places.forget(session_id)

    async def _place(self, session: SessionView) -> Place:
        try:
            return await self._places.make(session, folder=self._needs_folder)
        except OSError as error:
            raise ServiceUnavailable(
                f"{self.name} has no place to work: its folder cannot be made ({error.strerror})."
            ) from error

    async def _connected(self, place: Place) -> UpstreamConnection:
        connection = UpstreamConnection(self.name, shared=self.scope == "shared")
        connection.on_changed = self._changed
        connection.param_headers = self._param_headers
        # A little less than the core allows, so that the cause is told instead of cut off.
        seconds = self.connect_seconds - min(1.0, self.connect_seconds / 10)
        await connection.connect(
            partial(self._channel, place), eras=self._eras, seconds=seconds, secrets=self._secrets
        )
        if self.config.era == "auto":
            # What worked is tried first the next time.
            worked = connection.peer.era
            self._eras = (worked, "modern" if worked == "legacy" else "legacy")
        return connection

    def _channel(self, place: Place) -> OpenChannel:
        config = self.config
        if config.command is None:
            assert config.url is not None
            headers = {name: place.fill(value) for name, value in config.headers.items()}
            connect = http_channel if self.transport == "http" else sse_channel
            return connect(place.fill(config.url), headers)
        return stdio_channel(
            place.fill(config.command),
            [place.fill(argument) for argument in config.args],
            service=self.name,
            env={name: place.fill(value) for name, value in config.env.items()},
            cwd=self._cwd(place),
            limits=self._limits,
            ledger=self._ledger,
        )

    def _cwd(self, place: Place) -> str | None:
        if self.config.cwd is None:
            return None
        folder = Path(place.fill(self.config.cwd))
        return str(folder if self._base is None else self._base / folder)

    def _changed(self, method: str, params: JSON) -> None:
        if self._on_changed is not None:
            self._on_changed(self, method)

    def _param_headers(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        wanted = self._header_maps.get(tool)
        return mcp_param_headers(wanted, arguments) if wanted else {}


async def listed(connection: UpstreamConnection, method: str, key: str) -> list[JSON]:
    """Return all pages of a list, the objects among its items only."""
    items: list[JSON] = []
    seen: set[str] = set()
    cursor: object = None
    for _ in range(PAGES):
        params: JSON = {"cursor": cursor} if isinstance(cursor, str) else {}
        page = await connection.request(method, params, recipes.Quiet())
        found: object = page.get(key)
        if not isinstance(found, list):
            raise UpstreamMisbehaved(connection.service, f"{method} answered without {key}")
        items += [cast(JSON, item) for item in cast(list[object], found) if isinstance(item, dict)]
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):
            return items
        if cursor in seen:
            break
        seen.add(cursor)
    raise UpstreamMisbehaved(connection.service, f"{method} has no end")


async def _listed_tools(connection: UpstreamConnection) -> tuple[ToolSpec, ...]:
    if "tools" not in connection.peer.capabilities:
        try:
            found = await listed(connection, "tools/list", "tools")
        except UpstreamRefused:
            return ()
    else:
        found = await listed(connection, "tools/list", "tools")
    named: dict[str, ToolSpec] = {}
    for definition in found:
        name = definition.get("name")
        if isinstance(name, str) and name:
            named.setdefault(name, ToolSpec(name, definition))
        else:
            logger.warning("%s lists a tool without a name", connection.service)
    return tuple(named.values())


def _header_map(spec: ToolSpec) -> Mapping[tuple[str, ...], str]:
    schema = spec.definition.get("inputSchema")
    if not isinstance(schema, dict) or find_invalid_x_mcp_header(schema) is not None:
        return {}
    return x_mcp_header_map(schema)


def transport_of(config: UpstreamConfig) -> Transport:
    if config.command is not None:
        return "stdio"
    if config.type in ("http", "sse"):
        return config.type
    path = (config.url or "").partition("?")[0].rstrip("/")
    return "sse" if path.endswith("/sse") else "http"


def config_hash(config: UpstreamConfig) -> str:
    """Return a digest of what a snapshot or a tool list depends on.

    Of each secret value only 16 bits go in: enough to notice a change, nothing to find the value with.
    """
    fields = config.model_dump(mode="json", include=set(_IDENTITY))
    fields["recipe"] = None if config.recipe is None else config.recipe.model_dump(mode="json")
    fields["env"] = {name: _trace(value) for name, value in sorted(config.env.items())}
    fields["headers"] = {name: _trace(value) for name, value in sorted(config.headers.items())}
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


_IDENTITY: Final = ("command", "args", "cwd", "url", "type", "era", "scope")


def _trace(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:4]


def _checkpoint(recipe: Recipe | None) -> float | None:
    if recipe is None or not recipe.save or recipe.checkpoint == 0:
        return None
    return recipe.checkpoint


def _needs_folder(config: UpstreamConfig) -> bool:
    texts = (config.command, config.cwd, config.url, *config.args, *config.env.values())
    return config.recipe is not None or any("{dir}" in text for text in texts if text)


__all__ = ["Check", "Profile", "UpstreamService", "config_hash", "listed", "transport_of"]
