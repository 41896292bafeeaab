"""The built-in browser as a service: its tools, and the connection of each session to a browser."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import quote

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ...sessions.errors import ConnectionLost, ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON
from ...sessions.services import LossPolicy, PausePolicy, SessionView, Snapshot, ToolSpec
from ...sessions.store.sealing.encryption import Encryption
from ..processes.launch import death_signal_prefix
from ..processes.ledger import Ledger
from ..processes.workdir import remove_folder, safe_name
from ..upstream.probe import Check
from .config import BrowserConfig
from .egress.egress_service import Egress, OwnerHosts
from .egress.network_policy import NetworkPolicy
from .logins.checks import LoginChecks
from .logins.leases import LoginLeases
from .process.browser_launch import HostPlace, Launcher
from .process.browser_process import BrowserProcess
from .process.pool import BrowserDied, Pool
from .secrets.named import NamedSecrets
from .secrets.source import load_secrets
from .session.clipboard import owns_browser
from .session.files import FILES_OF_SESSION, Files
from .session.output_folder import OutputFolder, find_missing_path
from .snapshot.adoption import ContextFile, ContextPlace
from .snapshot.model import ContextSnapshot
from .snapshot.storage_file import load_storage_state
from .tool_list import tool_specs

if TYPE_CHECKING:
    from .connection import BrowserConnection
    from .opening import BrowserOpening
    from .tool import BrowserTool

logger = logging.getLogger("statehold.browser")

CALL_SECONDS = 300.0
TYPE: Final = "browser_type"
"""The tool with the names of the secrets in its description: the cheapest place that every caller reads."""


class BrowserService:
    """The service of `[services.browser]`. Enter it while the process serves; leaving it closes every browser.

    Each session has a browser context of its own, in a browser process that only sessions of the same owner share.
    """

    pause: PausePolicy
    scope: Literal["session", "shared"] = "session"
    concurrency = 1
    transport = "browser"
    capabilities: Collection[str] = frozenset({"resources"})
    prompts: Sequence[JSON] = ()

    def __init__(
        self,
        name: str,
        config: BrowserConfig,
        *,
        data: Path | None = None,
        ledger: Ledger | None = None,
        call_seconds: float = CALL_SECONDS,
        has_local_callers: bool = False,
        own_ports: set[int] | None = None,
        hosts_of: OwnerHosts | None = None,
        logins: LoginLeases | None = None,
    ) -> None:
        """`has_local_callers`: every caller already has access to this machine, so private addresses may be reached
        by default, and the roots that its client offers are folders for uploads.

        `own_ports`: the ports that this process serves, also those opened later. No page can reach them, whatever the
        configuration allows.

        `hosts_of`: returns the only hosts that the sessions of an owner may reach, besides; None for all.

        `logins`: the logins of the configuration, if there are any.
        """
        self.name = name
        self.config = config
        self.config_hash = hashlib.sha256(
            config.model_dump_json(exclude={"key", "on_lost", "approve"}).encode()
        ).hexdigest()[:16]
        self.on_lost: LossPolicy = config.on_lost
        self.eager = config.connect == "eager"
        self.approve = config.approve
        self.connect_seconds = config.connect_seconds
        self.call_seconds = config.call_seconds or call_seconds
        self.pause = "release" if config.is_attached else "snapshot"
        self.checkpoint_seconds = None if config.is_attached else config.checkpoint or None
        self._attached_session: str | None = None
        """The id of the session that is attached to the tabs of a browser."""
        self._logins = logins
        self.specs = tool_specs(config, logins=logins is not None)
        self._tools: dict[str, BrowserTool] = {}
        self._secrets: NamedSecrets | None = None
        self._secrets_turn = anyio.Lock()
        self._has_local_callers = has_local_callers
        self._private = has_local_callers if config.private is None else config.private
        self._own_ports = own_ports
        self._hosts_of = hosts_of
        self._data = data
        self._folder = Path() if data is None else data / "browser"
        self._contexts = self._folder / "contexts" / safe_name(name)
        self._ledger = ledger
        self._encryption: Encryption | None = None
        self._lost_activities: dict[str, list[str]] = {}
        """The activities (BrowserSession.activities) lost with a browser, by session id, until it is opened again."""
        self._session_secrets: dict[str, NamedSecrets] = {}
        """The secrets and typed texts of each open session; where a person typed, until the session is purged."""
        self._tasks: TaskGroup | None = None
        self._egress: Egress | None = None
        self._pool: Pool | None = None
        self._exit = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<BrowserService {self.name!r}>"

    async def __aenter__(self) -> Self:
        # Imported here: they would take a tenth of the start of the process, and a list of the tools does not need them.
        from .tools import toolset

        tools = toolset(self.config, logins=self._logins is not None)
        self._tools = {tool.name: tool for tool in tools}
        async with AsyncExitStack() as stack:
            if self._data is None:
                self._folder = Path(tempfile.mkdtemp(prefix="statehold-browser-"))
                stack.push_async_callback(remove_folder, self._folder)
            stack.callback(self._forget_pool)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            if self._logins is not None:
                self._tasks.start_soon(self._logins.run)
            config = self.config
            policy = NetworkPolicy(
                allow=config.allow,
                block=config.block,
                private=self._private,
                bytes_per_second=config.bytes_per_second,
                response_bytes=config.download_bytes * FILES_OF_SESSION,
            )
            self._egress = Egress(
                policy,
                tasks=self._tasks,
                proxy=config.proxy,
                remote=config.elsewhere or config.is_attached,
                own_ports=self._own_ports,
                hosts_of=self._hosts_of,
            )
            # A little less than the core allows, so that the cause is reported before the core's own timeout.
            seconds = self.connect_seconds - min(1.0, self.connect_seconds / 10)
            pool = Pool(
                Launcher(self.config, seconds=seconds, spawn=self._spawn, hosts=self._hosts()),
                folder=self._folder / "temporary",
                ledger=self._ledger,
                keep_seconds=0.0 if self.config.is_attached else self.config.keep_seconds,
                remote=self.config.remote,
            )
            self._pool = await stack.enter_async_context(pool)
            if self._logins is not None and not config.remote:
                checks = LoginChecks(self._logins, self.open, self.forget).running()
                await stack.enter_async_context(checks)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        # The task group is not passed the error of its user, so that it does not wrap it.
        await self._exit.aclose()

    def _hosts(self) -> HostPlace | None:
        """Return the place of browsers that outlive this process; None if no keeper can hold them, or if that is off."""
        if self._ledger is None or self._ledger.keeper is None or self._data is None:
            return None
        if not death_signal_prefix() or self.config.remote or not self.config.outlive:
            return None
        return HostPlace(self._ledger, self.name, self._folder / "temporary")

    def _forget_pool(self) -> None:
        self._tasks = self._egress = self._pool = None

    async def tools(self) -> Sequence[ToolSpec]:
        """Return the tools; one of them names the secrets.

        Raises:
            ServiceUnavailable: The secrets cannot be read, or a file or a folder of the configuration is missing.
        """
        await self._require_paths()
        await self._load_secrets()
        return tuple(self.specs.values())

    async def check(self) -> Check:
        """Start a browser, end it, and report the result. A failed start is reported, not raised."""
        began = time.monotonic()
        try:
            await self._require_paths()
            await self._load_secrets()
            async with self:
                with anyio.fail_after(self.connect_seconds):
                    server = await self._start_browser()
        except SessionError as error:
            seconds = time.monotonic() - began
            return Check(self.name, self.transport, False, seconds, error=error.message)
        except TimeoutError:
            error = f"no browser started within {self.connect_seconds:g} seconds"
            return Check(self.name, self.transport, False, self.connect_seconds, error=error)
        seconds = time.monotonic() - began
        return Check(self.name, self.transport, True, seconds, server=server, tools=len(self.specs))

    async def _start_browser(self) -> JSON:
        assert self._pool is not None
        process = await self._pool.acquire("check")
        try:
            return {"name": "Chromium", "version": process.browser.version}
        finally:
            self._pool.release(process)

    async def forget(self, session_id: str) -> None:
        """Remove the files of a session that was purged."""
        self._lost_activities.pop(session_id, None)
        self._session_secrets.pop(session_id, None)
        await remove_folder(self._files_of(session_id).folder)

    async def answer(
        self,
        session: SessionView,
        method: str,
        params: JSON,
        saved: Callable[[], Awaitable[Snapshot | None]] | None = None,
    ) -> JSON:
        """Answer requests for resources with the files of a session, masked as results are. No browser is needed.

        Raises:
            InvalidArgument: There is no such file, or no such method.
            ServiceUnavailable: The secrets or the snapshot cannot be read.
        """
        files = self._files_of(session.id)
        if method != "resources/read":
            return await files.answer(method, params)
        named = self._session_secrets.get(session.id)
        masks = [await self._load_secrets() if named is None else named]
        if saved is not None:
            masks += await self._saved_masks(session.id, await saved())

        def mask(data: bytes) -> bytes:
            for secrets in masks:
                data = secrets.mask_file(data)
            return data

        return await files.answer(method, params, mask=mask)

    async def _saved_masks(self, session_id: str, snapshot: Snapshot | None) -> list[NamedSecrets]:
        """Return masks for the texts that a person typed before this process started, or at another node."""
        record = await anyio.to_thread.run_sync(self._context_file(session_id).read)
        saved_texts = [record.typed]
        if snapshot is not None:
            encryption = await self._load_encryption()
            saved_texts.append(ContextSnapshot.from_snapshot(snapshot, encryption).typed)
        masks: list[NamedSecrets] = []
        for texts in filter(None, saved_texts):
            masks.append(NamedSecrets())
            masks[-1].typed.restore(texts)
        return masks

    def _files_of(self, session_id: str) -> Files:
        folder = self._folder / "files" / safe_name(session_id)
        # The same form as the links that the core writes in results.
        root = f"session://{session_id}/{quote(self.name, safe='')}/"
        is_remote = self.config.ws_endpoint is not None or self._hosts() is not None
        output: OutputFolder | None = None
        if (output_dir := self.config.output_folder) is not None:
            output = OutputFolder(output_dir, self.config.output_max_size)
        return Files(
            folder,
            largest=self.config.download_bytes,
            root=root,
            is_remote=is_remote,
            output=output,
            shows_paths=self._has_local_callers,
        )

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> BrowserConnection:
        """Open a context for a session and restore the snapshot into it; without one, the logins of `storage_state`.

        A browser that dies meanwhile is replaced once: no call was sent to it yet.

        Raises:
            ServiceUnavailable: No browser can be started, or the snapshot, the secrets or `storage_state` cannot be read.
        """
        encryption = await self._load_encryption()
        context_snapshot = initial_state = None
        if snapshot is None:
            initial_state = await load_storage_state(self.config.storage_state)
        else:
            context_snapshot = ContextSnapshot.from_snapshot(snapshot, encryption)
        open_context = partial(
            self._open_context, session, context_snapshot, initial_state, encryption
        )
        try:
            return await open_context()
        except BrowserDied as error:
            logger.warning("a browser died while a session was opened in it: %s", error.message)
        return await open_context()

    async def _open_context(
        self,
        session: SessionView,
        context_snapshot: ContextSnapshot | None,
        initial_state: ContextSnapshot | None,
        encryption: Encryption | None,
    ) -> BrowserConnection:
        if self._pool is None or self._egress is None:
            raise ServiceUnavailable("The browser service is not running.")
        session_id = session.id if owns_browser(self.config) else ""
        if self.config.is_attached:
            self._require_unattached()
        secrets = await self._load_secrets()
        process = await self._pool.acquire(session.owner, session_id)
        opening = self._opening(session, secrets)
        try:
            connection = await opening.connection(
                process,
                self._egress,
                context_snapshot,
                self._tools,
                initial_state=initial_state,
                encryption=encryption,
                lost_activities=self._lost_activities.get(session.id),
            )
        except BaseException:
            self._pool.release(process)
            raise
        if self.config.is_attached:
            try:
                # Another session may have attached meanwhile.
                self._require_unattached()
            except ServiceUnavailable:
                await connection.aclose()
                self._pool.release(process)
                raise
            self._attached_session = session.id
            connection.on_closed.append(self._record_detached)
        self._follow(session.id, connection, process)
        return connection

    async def resume(
        self, session: SessionView, token: str, snapshot: Snapshot | None
    ) -> BrowserConnection:
        """Take over the context of a session whose process died; see Service in sessions/services.py.

        Raises:
            ConnectionLost: It is gone, or could not be taken over.
        """
        place = ContextPlace.from_token(token)
        try:
            encryption = await self._load_encryption()
            context_snapshot = (
                None if snapshot is None else ContextSnapshot.from_snapshot(snapshot, encryption)
            )
            secrets = await self._load_secrets()
            if self._pool is None or self._egress is None:
                raise ServiceUnavailable("The browser service is not running.")
            session_id = session.id if owns_browser(self.config) else ""
            process = await self._pool.adopt(session.owner, session_id, place.host)
            try:
                connection = await self._opening(session, secrets).resumed_connection(
                    process,
                    self._egress,
                    place,
                    context_snapshot,
                    self._tools,
                    encryption=encryption,
                )
            except BaseException:
                self._pool.release(process)
                raise
        except ServiceUnavailable as error:
            # Its snapshot brings back most of it; a browser that fails now may fail for ever.
            raise ConnectionLost(error.message) from error
        self._follow(session.id, connection, process)
        return connection

    def recorded_sessions(self) -> list[str]:
        """Return the sessions whose contexts may have outlived the process that opened them. Blocks for a moment."""
        return [path.stem for path in self._contexts.glob("*.json")]

    def _context_file(self, session_id: str) -> ContextFile:
        return ContextFile(self._contexts / f"{session_id}.json")

    def _opening(self, session: SessionView, secrets: NamedSecrets) -> BrowserOpening:
        from .opening import BrowserOpening

        return BrowserOpening(
            self.config,
            session,
            self._files_of(session.id),
            secrets=secrets,
            spawn=self._spawn,
            context_file=self._context_file(session.id),
            has_local_callers=self._has_local_callers,
            leases=self._logins,
        )

    def _follow(
        self, session_id: str, connection: BrowserConnection, process: BrowserProcess
    ) -> None:
        assert self._pool is not None
        self._lost_activities.pop(session_id, None)
        named = connection.session.secrets.named
        if (earlier := self._session_secrets.get(session_id)) is not None:
            named.extend(earlier)
        self._session_secrets[session_id] = named
        self._remember(session_id, connection, process)
        connection.on_closed.append(partial(self._pool.release, process))
        connection.on_closed.append(partial(self._forget_secrets, session_id, named))

    def _forget_secrets(self, session_id: str, named: NamedSecrets) -> None:
        """Forget the secrets of a closed connection, unless they mask texts of the session."""
        if self._session_secrets.get(session_id) is named and not named.is_used:
            del self._session_secrets[session_id]

    def _require_unattached(self) -> None:
        """Check that no session is attached to the tabs of the browser.

        Raises:
            ServiceUnavailable: One is.
        """
        if self._attached_session is not None:
            raise ServiceUnavailable(
                f"The tabs at {self.config.place} are in use by another session.",
                recovery="Close or pause the session that uses them, then call again; call session_list to find it.",
            )

    def _record_detached(self) -> None:
        self._attached_session = None

    def _remember(
        self, session_id: str, connection: BrowserConnection, process: BrowserProcess
    ) -> None:
        """If the browser is lost, record the session's activities (BrowserSession.activities): the snapshot may be older."""

        def record(_: str) -> None:
            self._lost_activities[session_id] = connection.session.activities()

        process.on_lost.append(record)
        connection.on_closed.append(partial(process.on_lost.remove, record))

    async def _require_paths(self) -> None:
        # Callers need not know the folders of the machine.
        find = partial(find_missing_path, self.config, lambda path: Path(path).name)
        missing = await anyio.to_thread.run_sync(find)
        if missing is not None:
            raise ServiceUnavailable(f"services.{self.name}.{missing[0]}: {missing[1]}.")

    async def _load_secrets(self) -> NamedSecrets:
        """Return the named secrets, which are read once.

        Raises:
            ServiceUnavailable: They cannot be read.
        """
        async with self._secrets_turn:
            if self._secrets is None:
                self._secrets = await load_secrets(self.config)
                if self._secrets:
                    definition = dict(self.specs[TYPE].definition)
                    definition["description"] += f" Secrets to type: {self._secrets}"
                    self.specs[TYPE] = replace(self.specs[TYPE], definition=definition)
            return self._secrets

    async def _load_encryption(self) -> Encryption | None:
        if self.config.key is not None and self._encryption is None:
            self._encryption = await anyio.to_thread.run_sync(Encryption, self.config.key)
        return self._encryption

    def _spawn(self, work: Callable[..., Any], *args: object) -> None:
        assert self._tasks is not None, "the browser service is not running"
        self._tasks.start_soon(partial(_run_logging_failure, work, *args))


async def _run_logging_failure(work: Callable[..., Any], *args: object) -> None:
    try:
        await work(*args)
    except Exception:
        logger.debug("background work of a browser failed", exc_info=True)
