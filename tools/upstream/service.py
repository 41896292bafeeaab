"""One configured upstream: any MCP server as a service that sessions use."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
from mcp.shared.inbound import mcp_param_headers

from ...sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON, loads
from ...sessions.one_line import without_folders
from ...sessions.records import LOCAL
from ...sessions.services import LossPolicy, PausePolicy, SessionView, Snapshot, ToolSpec
from ..catalog import app_page
from ..logins.keys import Keys
from ..outputs import OutputRules
from ..pins.pins import Pins, ServicePins
from ..processes.child_process import KeeperHandle, ProcessLimits
from ..processes.keeper import KeptIdentity
from ..processes.launch import inherited_environment
from ..processes.ledger import Ledger
from ..processes.workdir import Placeholders, WorkFolders
from . import identity
from . import recipe as recipes
from .config import Transport, UnusableConfig, UpstreamConfig
from .connection import UpstreamConnection
from .errors import UpstreamRefused, older_era_note
from .known_secrets import Secrets
from .live_items import LiveItems
from .negotiation import EraChoice, Peer
from .oauth.logins import ServiceLogins
from .probe import Check, HeaderMap, Profile, ResultT, Work, header_map, probe_upstream
from .profile_file import ProfileFile
from .resource_updates import InternalContext
from .sandbox import ServiceSandboxes
from .transports.http_errors import HttpRefused
from .transports.opener import TransportOpener

logger = logging.getLogger("statehold.upstream")

CALL_SECONDS: Final = 300.0
FALLBACK_SECONDS: Final = 10.0
"""Seconds that a second transport may take to connect."""
EPOCH_NUMBERS: Final = 1 << 24
"""Ids of requests in one epoch of a session: those of a connection that is resumed begin at a multiple of it."""
ServiceChangeCallback = Callable[["UpstreamService", str, UpstreamConnection, JSON], None]
"""Called when a list or a resource changed: service, method of the notification, connection, params."""


class UpstreamService:
    """An upstream of the configuration. It lives as long as the process; the connections that it opens belong to sessions.

    `on_changed` is called when a live connection announces a change of a list. Then refresh() probes a fresh connection, and
    learn_tools() and learn_prompts() add the items that only the live one has. `inherit_env` names environment variables
    that its process inherits in addition to those of the configuration.
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
        inherit_env: Iterable[str] = (),
        limits: ProcessLimits | None = None,
        on_changed: ServiceChangeCallback | None = None,
        logins: ServiceLogins | None = None,
        keys: Keys | None = None,
        pins: Pins | None = None,
        sandboxes: ServiceSandboxes | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.config_hash = identity.config_hash(config)
        self.pins = ServicePins(pins, name, identity.pins_hash(config))
        self.transport: Transport = identity.transport_of(config)
        """The transport that worked last; before that, the likely one."""
        self.pause: PausePolicy = config.pause or ("snapshot" if config.recipe else "keep")
        self.on_lost: LossPolicy = config.on_lost
        self.scope: Literal["session", "shared"] = config.scope
        self.concurrency = config.concurrency
        self.eager = config.connect == "eager"
        self.approve = config.approve
        self._has_started = False
        self.call_seconds = config.call_seconds or call_seconds
        self.checkpoint_seconds = identity.checkpoint_of(config.recipe)
        self.profile: Profile | None = None
        """The result of the last probe; before the first probe, the profile that recall() loaded, or None."""
        self._file = ProfileFile(data, name, self.config_hash, is_strict=self.pins.is_strict)
        self.ledger = ledger
        self.on_changed = on_changed
        self._work_folders = WorkFolders(data, name)
        inherited_env = inherited_environment((*inherit_env, *config.inherit_env))
        self._secrets = Secrets.of(config, inherited_env if config.command else None)
        self._sandboxes = sandboxes or ServiceSandboxes(name, config.sandbox)
        self._opener = TransportOpener(
            name,
            config,
            secrets=self._secrets,
            inherited_env=inherited_env,
            base=base,
            limits=limits,
            ledger=ledger,
            logins=logins,
            keys=keys,
            sandboxes=self._sandboxes,
        )
        self.separates = self._opener.separates
        """Returns whether it answers a principal by a login or a key, theirs or the operator's, and so not for others."""
        self._era = EraChoice(config.era, shared=config.scope == "shared")
        self._probing, self._reading, self._turn = anyio.Lock(), anyio.Lock(), anyio.Lock()
        self._header_maps: dict[str, HeaderMap] = {}
        self._followed_uris: dict[str, set[str]] = {}
        """The resources to which each session is subscribed; its next connection subscribes to them again."""
        self._pages: dict[str, JSON] = {}
        """The pages of MCP Apps by URI; cleared when the service changes."""
        self.live_tools = LiveItems[ToolSpec]()
        self.specs: Mapping[str, ToolSpec] = {}
        self._live_prompts = LiveItems[JSON]()
        self._asking_tools = set[str]()

    @property
    def connect_seconds(self) -> float:
        """Seconds that opening a connection may take; more for the first start of a command."""
        first = self.config.first_connect_seconds
        if self._has_started or first is None or self.transport != "stdio":
            return self.config.connect_seconds
        return first

    def _remedy(self) -> str:
        """Return advice for a service that did not answer in time; empty after its first start."""
        if self._has_started:
            return ""
        return identity.start_remedy(self.name, self.config, self.transport)

    @property
    def capabilities(self) -> Collection[str]:
        """The capabilities that it declared in the last probe."""
        return () if self.profile is None else self.profile.peer.capabilities.keys()

    @property
    def prompts(self) -> Sequence[JSON]:
        """The prompts of a fresh connection, and those that learn_prompts() added."""
        fresh = () if self.profile is None else self.profile.prompts
        return (*fresh, *self._live_prompts.beyond({prompt["name"] for prompt in fresh}))

    async def recall(self) -> bool:
        """Load the profile that an earlier process with this configuration stored. Return whether there is one."""
        if self.profile is None:
            profile = await anyio.to_thread.run_sync(self._file.read)
            if self.profile is None and profile is not None:
                self._has_started = True
                self._set_profile(profile)
                self._era.note(profile.peer)
                if profile.transport in identity.transports_of(self.config, self.transport):
                    self.transport = profile.transport
        return self.profile is not None

    async def tools(self) -> Sequence[ToolSpec]:
        """Return its tools. The first call probes the upstream; concurrent calls share that probe.

        Raises:
            ServiceUnavailable: It cannot be opened or does not list its tools.
        """
        if self.profile is None:
            async with self._probing:
                if self.profile is None:
                    await self._probe()
        return self._all_tools()

    def _all_tools(self) -> tuple[ToolSpec, ...]:
        fresh = self.profile.tools if self.profile is not None else ()
        return (*fresh, *self.live_tools.beyond({spec.name for spec in fresh}))

    def _index_tools(self) -> None:
        # The first tool of a name wins, as in the tool list.
        self.specs = {spec.name: spec for spec in reversed(self._all_tools())}

    async def learn_tools(self, connection: UpstreamConnection, tools: Iterable[ToolSpec]) -> None:
        """Add the tools that only a live connection lists, and remove those that it no longer lists."""
        specs = {spec.name: spec for spec in await self.pins.admit_tools([*tools])}
        self.live_tools.learn(connection, specs)
        self._index_tools()
        self._header_maps = {
            name: header_map(spec) for name, spec in specs.items()
        } | self._header_maps

    async def learn_prompts(self, connection: UpstreamConnection, prompts: Iterable[JSON]) -> None:
        """Add the prompts that only a live connection lists, and remove those that it no longer lists."""
        admitted = await self.pins.admit_items("prompt", "name", [*prompts])
        self._live_prompts.learn(connection, {prompt["name"]: prompt for prompt in admitted})

    async def refresh(self) -> bool:
        """Probe again and return whether the tools changed. Raises like tools(); then the old tools stay."""
        async with self._probing:
            before = self.profile
            await self._probe()
            return before is None or self.profile is None or before.tools != self.profile.tools

    async def check(self) -> Check:
        """Probe the upstream and return a report, also of a failure."""
        started_at = time.monotonic()
        try:
            await self.refresh()
        except SessionError as error:
            seconds = time.monotonic() - started_at
            return Check(self.name, self.transport, False, seconds, error=error.message)
        assert self.profile is not None
        return self.profile.check(self.name, self.transport, time.monotonic() - started_at)

    async def _probe(self) -> None:
        try:
            profile = await self.ask(probe_upstream, "list its tools")
            profile = profile.after(self.profile, self.transport)
            self._era.note(profile.peer)
            tools = await self.pins.admit_tools(profile.tools)
            prompts = await self.pins.admit_items("prompt", "name", profile.prompts)
            profile = replace(profile, tools=tools, prompts=prompts)
        except (OutcomeUnknown, ConnectionLost, UpstreamRefused) as error:
            raise ServiceUnavailable(
                f"{self.name} did not list its tools: {error.message}"
            ) from error
        before = self.profile
        self._set_profile(profile)
        if profile != before:
            await anyio.to_thread.run_sync(self._file.write, profile)

    def _set_profile(self, profile: Profile) -> None:
        self.profile = profile
        self._index_tools()
        self._pages.clear()
        self._header_maps = {spec.name: header_map(spec) for spec in self._all_tools()}

    def names_page(self, uri: str) -> bool:
        """Return whether a tool names a URI as its page."""
        return uri in (app_page(spec.definition.get("_meta")) for spec in self._all_tools())

    async def read_page(self, uri: str) -> JSON | None:
        """Return the result of `resources/read` for a page of an MCP App, None if no tool names this URI as its page.

        The page is the same for every session. It is read over a temporary connection and cached until the service changes.

        Raises:
            ServiceUnavailable: The service cannot be opened or does not answer.
            UpstreamRefused: It has no such page.
        """
        await self.tools()
        if not self.names_page(uri):
            return None
        async with self._reading:
            if uri not in self._pages:
                page = await self.request("resources/read", {"uri": uri})
                self._pages[uri] = await self.pins.admit_page(uri, page)
            return self._pages[uri]

    async def request(self, method: str, params: JSON, owner: str = "") -> JSON:
        """Send a request outside of any session. Raises like ask()."""
        context, task = InternalContext(), f"answer {method}"
        return await self.ask(lambda it: it.request(method, params, context), task, owner)

    async def ask(self, work: Work[ResultT], task: str, owner: str = "") -> ResultT:
        """Return the result of `work` over a temporary connection. An error about its time names the `task`.

        The connection has the login of the principal `owner`; empty: that of the operator.

        Raises:
            ServiceUnavailable: The service cannot be opened, or takes longer than `connect_seconds`.
        """
        try:
            async with self.open_temporary(owner) as connection:
                with anyio.fail_after(self.connect_seconds):
                    return await work(connection)
        except TimeoutError:
            raise ServiceUnavailable(
                f"{self.name} did not {task} within {self.connect_seconds:g} seconds."
            ) from None

    @asynccontextmanager
    async def open_temporary(self, owner: str = "") -> AsyncGenerator[UpstreamConnection]:
        """Open a temporary connection outside of any session, and remove its folder afterwards."""
        view = SessionView(
            id=f"probe_{secrets.token_hex(4)}", name=None, namespace="", owner=owner, generation=1
        )
        if self.transport == "http":
            # The server behind the address may keep sessions by now.
            self._era.forget()
        try:
            connection = await self._connect(await self._make_placeholders(view))
            # A server that announces its lists when it starts would have us, and clients, read them without end.
            connection.on_changed = None
            async with aclosing(connection):
                yield connection
        finally:
            await self._work_folders.forget(view.id)

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> UpstreamConnection:
        """Open a connection for a session and restore the snapshot.

        Raises:
            ServiceUnavailable: The connection failed. The message has the cause and the last output; nothing is left behind.
        """
        placeholders = await self._make_placeholders(session)
        kept, older = self._keeper_handle(session), session.has_older_caller
        is_own = await self._opener.has_own_login(placeholders)
        connection = await self._connect(placeholders, kept, older)
        try:
            connection.restore_report = await recipes.restore(
                self.config.recipe, connection, placeholders.folder, snapshot, session.generation
            )
        except (OutcomeUnknown, ConnectionLost) as error:
            await connection.aclose()
            reason = connection.reason or error.message
            raise ServiceUnavailable(f"{self.name} died while restoring: {reason}.") from error
        except BaseException:
            await connection.aclose()
            raise
        self._follow(connection, session, is_own)
        return connection

    async def resume(
        self, session: SessionView, token: str, snapshot: Snapshot | None
    ) -> UpstreamConnection:
        """Resume the connection of a session whose process died; see Service in sessions/services.py.

        An HTTP server without sessions gets a new connection, because it keeps nothing for the old one.

        Raises:
            ConnectionLost: Its process is gone or had another sandbox, or the server does not know the MCP session any more.
            ServiceUnavailable: The server does not answer, so that it may still have the connection.
        """
        fields: JSON = loads(token)
        if fields.get("sandbox") != self._sandboxes.digest:
            raise ConnectionLost("its sandbox has changed")
        peer, session_id = Peer.from_json(fields["peer"]), fields["session_id"]
        placeholders = await self._make_placeholders(session)
        is_own = await self._opener.has_own_login(placeholders)
        if self.transport == "http" and session_id is None:
            connection = await self._connect(placeholders)
        else:
            connection = self._new_connection(placeholders)
            await connection.resume(
                self._opener.resume_session(placeholders, session_id, peer.version)
                if self.transport == "http"
                else self._opener.resume_process(placeholders, self._keeper_handle(session)),
                peer=peer,
                first_number=session.epoch * EPOCH_NUMBERS,
                secrets=self._secrets,
            )
            self._has_started = True
            connection.report_missed_changes()
        self._follow(connection, session, is_own)
        return connection

    def _follow(self, connection: UpstreamConnection, session: SessionView, is_own: bool) -> None:
        """Follow the changes that the upstream of a session's connection announces."""
        self.live_tools.connections.add(connection)
        known, peer = self.profile, connection.peer
        self.profile = known and known.declaring(peer.era, peer.capabilities)
        if self.profile is not known:
            self._handle_change(connection, "notifications/tools/list_changed", {})
        # Without placeholders in its URL or headers, an HTTP server sends every session the same notifications.
        sends_same = self.transport == "http" and not identity.is_filled(self.config)
        # A connection with the login of a principal lists and announces what others may not see.
        if self.scope == "session" and session.owner != LOCAL.key:
            connection.owner = session.owner
        connection.listen(self._turn if sends_same and not is_own else None)
        if self.scope == "session":
            connection.session_id = session.id
            connection.follow(self._followed_uris, session.id)

    def check_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return an imported snapshot reduced to the values that the recipe saves; empty without a recipe. Thread-safe.

        Raises:
            InvalidArgument: The recipe cannot have saved one of the values.
        """
        return recipes.check_snapshot(self.config.recipe, snapshot)

    async def forget(self, session_id: str) -> None:
        """Remove the folder and the subscriptions of a deleted session."""
        self._followed_uris.pop(session_id, None)
        await self._work_folders.forget(session_id)

    async def _make_placeholders(self, session: SessionView) -> Placeholders:
        try:
            needs_folder = identity.needs_folder(self.config)
            return await self._work_folders.placeholders_for(session, needs_folder=needs_folder)
        except OSError as error:
            raise ServiceUnavailable(
                f"{self.name} cannot start: its working folder cannot be created ({error.strerror})."
            ) from error

    def _keeper_handle(self, session: SessionView) -> KeeperHandle | None:
        """Return the handle of a session's process at the keeper, None if it ends with this process."""
        keeper = None if self.ledger is None or self.scope == "shared" else self.ledger.keeper
        if keeper is None or self.transport != "stdio":
            return None
        kept = KeptIdentity(session.id, self.name, session.generation, session.epoch)
        return KeeperHandle(keeper, kept)

    async def _connect(
        self, placeholders: Placeholders, kept: KeeperHandle | None = None, older: bool = False
    ) -> UpstreamConnection:
        """Connect over the first transport that works, and keep it. `older`: for a caller of the older era."""
        if isinstance(self.config, UnusableConfig):
            raise ServiceUnavailable(
                without_folders(self.config.problem),
                recovery="Correct it, then start Statehold again.",
            )
        # A little less than the caller's own time limit, so that our error, which names the cause, comes first.
        seconds = self.connect_seconds - min(1.0, self.connect_seconds / 10)
        deadline = anyio.current_time() + seconds
        first, *others = identity.transports_of(self.config, self.transport)
        try:
            return await self._connect_over(first, seconds, placeholders, kept, older)
        except HttpRefused as refused:
            if not others or not refused.refusal.suggests_other_transport:
                if others and first == "http" and refused.refusal.hides_transport:
                    remedy = identity.sse_remedy(self.name)
                    refused.message += f" If it speaks HTTP+SSE only, {remedy}."
                raise
            [other] = others
            seconds = max(0.1, min(FALLBACK_SECONDS, deadline - anyio.current_time()))
            try:
                connection = await self._connect_over(other, seconds, placeholders, kept, older)
            except ServiceUnavailable as error:
                raise ServiceUnavailable(
                    f"{refused.message} Tried as `{other}`: {error.message}"
                ) from error
            self.transport = other
            return connection

    async def _connect_over(
        self,
        transport: Transport,
        seconds: float,
        placeholders: Placeholders,
        kept: KeeperHandle | None,
        older: bool,
    ) -> UpstreamConnection:
        connection = self._new_connection(placeholders)
        try:
            await connection.connect(
                partial(self._opener.open, transport, placeholders, kept),
                plan=self._era.plan(transport, older_caller=older),
                seconds=seconds,
                secrets=self._secrets,
                remedy=self._remedy(),
            )
        except ServiceUnavailable as error:
            self._era.forget()
            raise self._sandboxes.with_note(error) from error.__cause__
        self._has_started = True
        self._era.note(connection.peer)
        return connection

    def _new_connection(self, placeholders: Placeholders) -> UpstreamConnection:
        recipe, folder, saver = self.config.recipe, placeholders.folder, None
        if recipe is not None and recipe.save and folder is not None:
            saver = partial(recipes.save, recipe, folder=folder)
        return UpstreamConnection(
            self.name,
            shared=self.scope == "shared",
            open_another=partial(self._connect, placeholders),
            param_headers=self._param_headers,
            on_changed=self._handle_change,
            on_older_question=self._speak_older_era,
            saver=saver,
            asking_tools=self._asking_tools,
            rules=OutputRules(exact=self.config.text == "exact", https=self.pins.is_strict),
            explain=self._sandboxes.explain,
        )

    def _handle_change(self, connection: UpstreamConnection, method: str, params: JSON) -> None:
        if method.startswith("notifications/resources/"):
            self._pages.clear()
        if self.on_changed is not None:
            self.on_changed(self, method, connection, params)

    def _speak_older_era(self, connection: UpstreamConnection) -> str:
        """Speak the older era with new connections if the configuration leaves the choice. Return a note about it."""
        if chosen := self._era.prefer_older():
            self._handle_change(connection, "notifications/tools/list_changed", {})
        return older_era_note(self.name, chosen=chosen)

    def _param_headers(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        return mcp_param_headers(self._header_maps.get(tool) or {}, arguments)
