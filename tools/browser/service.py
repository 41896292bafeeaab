"""The built-in browser as a service: what it offers, and how a session gets its own."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ...sessions.errors import ServiceUnavailable, SessionError
from ...sessions.services import JSON, PausePolicy, Restored, SessionView, Snapshot, ToolSpec
from ..upstream.ledger import Ledger
from ..upstream.places import plain
from ..upstream.service import Check
from .config import BrowserConfig
from .connection import BrowserConnection
from .files import Files
from .pool import Pool
from .session import BrowserSession
from .tools import toolset

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

logger = logging.getLogger("statehold.browser")

CALL_SECONDS = 300.0


class BrowserService:
    """The browser of `[services.browser]`. `async with` it while the process serves; leaving it closes every browser.

    A session's browser is a context of its own, in a browser process that only sessions of the same owner share.
    """

    pause: PausePolicy = "snapshot"
    scope: Literal["session", "shared"] = "session"
    concurrency = 1
    transport = "browser"

    def __init__(
        self,
        name: str,
        config: BrowserConfig,
        *,
        data: Path | None = None,
        ledger: Ledger | None = None,
        call_seconds: float = CALL_SECONDS,
        alone: bool = False,
    ) -> None:
        """`alone`: whoever calls has this machine anyway, so private addresses may be reached where nothing else is said."""
        self.name = name
        self.config = config
        self.config_hash = hashlib.sha256(
            config.model_dump_json(exclude={"key"}).encode()
        ).hexdigest()[:16]
        self.eager = config.connect == "eager"
        self.connect_seconds = config.connect_seconds
        self.call_seconds = config.call_seconds or call_seconds
        self.checkpoint_seconds = config.checkpoint or None
        self._tools = {tool.name: tool for tool in toolset(config)}
        self._specs = tuple(tool.spec() for tool in self._tools.values())
        self._repeatable = {spec.name for spec in self._specs if spec.repeatable}
        self._private = alone if config.private is None else config.private
        self._data = data
        self._folder = Path() if data is None else data / "browser"
        self._ledger = ledger
        self._tasks: TaskGroup | None = None
        self._pool: Pool | None = None

    def __repr__(self) -> str:
        return f"<BrowserService {self.name!r}>"

    async def __aenter__(self) -> Self:
        if self._data is None:
            self._folder = Path(tempfile.mkdtemp(prefix="statehold-browser-"))
        self._tasks = await anyio.create_task_group().__aenter__()
        self._pool = Pool(
            self._launch,
            folder=self._folder / "temporary",
            ledger=self._ledger,
            keep_seconds=self.config.keep_seconds,
            remote=self.config.remote,
        )
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        assert self._pool is not None
        await self._pool.__aexit__(kind, error, traceback)
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        self._tasks = self._pool = None
        if self._data is None:
            with anyio.CancelScope(shield=True):
                await _removed(self._folder)

    # What it offers.

    async def tools(self) -> Sequence[ToolSpec]:
        return self._specs

    def repeatable(self, tool: str) -> bool:
        return tool in self._repeatable

    async def check(self) -> Check:
        """Start a browser, end it, and report, without raising."""
        began = time.monotonic()
        try:
            async with self:
                with anyio.fail_after(self.connect_seconds):
                    found = await self._tried()
        except SessionError as error:
            passed = time.monotonic() - began
            return Check(self.name, self.transport, False, passed, error=error.message)
        except TimeoutError:
            error = f"no browser started within {self.connect_seconds:g} seconds"
            return Check(self.name, self.transport, False, self.connect_seconds, error=error)
        passed = time.monotonic() - began
        return Check(self.name, self.transport, True, passed, server=found, tools=len(self._specs))

    async def _tried(self) -> JSON:
        assert self._pool is not None
        process = await self._pool.acquire("check")
        try:
            return {"name": "Chromium", "version": process.browser.version}
        finally:
            self._pool.release("check", process)

    async def forget(self, session_id: str) -> None:
        """Remove the files of a session that was purged."""
        await _removed(self._files(session_id))

    def _files(self, session_id: str) -> Path:
        return self._folder / "files" / plain(session_id)

    # Its connections.

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> BrowserConnection:
        """Open a context for a session and bring back what the snapshot holds.

        Raises:
            ServiceUnavailable: no browser can be had.
        """
        pool = self._pool
        if pool is None:
            raise ServiceUnavailable("The browser service is not running.")
        process = await pool.acquire(session.owner)
        try:
            context = await process.browser.new_context(**self._context_options())
            own = BrowserSession(
                self.config,
                context,
                generation=session.generation,
                files=Files(self._files(session.id), largest=self.config.download_bytes),
                spawn=self._spawn,
            )
        except BaseException:
            pool.release(session.owner, process)
            raise

        async def close() -> None:
            pool.release(session.owner, process)

        connection = BrowserConnection(own, process, self._tools, save=_nothing, close=close)
        connection.opened = Restored()
        return connection

    def _context_options(self) -> dict[str, Any]:
        config = self.config
        options: dict[str, Any] = {
            "viewport": {"width": config.viewport[0], "height": config.viewport[1]},
            "user_agent": config.user_agent,
            "locale": config.locale,
            "timezone_id": config.timezone,
            "permissions": config.permissions or None,
            "ignore_https_errors": config.ignore_https_errors or None,
        }
        return {key: value for key, value in options.items() if value is not None}

    async def _launch(self, playwright: Playwright) -> Browser:
        return await playwright.chromium.launch(
            executable_path=self.config.executable, headless=True, chromium_sandbox=False
        )

    def _spawn(self, work: Callable[..., Any], *args: object) -> None:
        assert self._tasks is not None, "the browser service is not running"
        self._tasks.start_soon(partial(_guarded, work, *args))


async def _removed(folder: Path) -> None:
    await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))


async def _guarded(work: Callable[..., Any], *args: object) -> None:
    try:
        await work(*args)
    except Exception:
        logger.debug("background work of a browser failed", exc_info=True)


async def _nothing(session: BrowserSession, light: bool) -> Snapshot | None:
    return None


__all__ = ["BrowserService"]
