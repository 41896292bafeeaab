"""Interception of requests: no document of an origin loads before the session's storage for that origin is restored.

It intercepts requests in the browser, not in a page, so redirects, popups, frames and workers are included. It pauses only
documents of origins that are still dormant, requests of origins that are blocked while a login changes hands, and requests
that the proxy would not see; other requests are not delayed. A Playwright route would pause every request, and turn the
browser's cache off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import anyio

from ....sessions.json_codec import JSON
from ..egress.network_policy import LOCAL_SCHEMES
from .world import origin_of, send_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession

logger = logging.getLogger("statehold.browser")

_BLOCKED_PATTERNS: Final = tuple({"urlPattern": f"{scheme}:*"} for scheme in LOCAL_SCHEMES)
RESTORE_SECONDS: Final = 5.0
"""Seconds that a document waits for the storage of its origin; it is then loaded without."""


class DormantContext(Protocol):
    """A browser context with origins whose storage is not restored yet, and origins that it may send no request to."""

    blocked: frozenset[str]

    @property
    def dormant(self) -> Collection[str]: ...

    async def restore_origin(self, origin: str) -> None: ...

    async def has_frame(self, frame: str) -> bool: ...


class RequestInterceptor:
    """Intercepts requests of one browser, for all of its contexts.

    Lives as long as the browser. All methods may be called concurrently.
    """

    _of_browsers: ClassVar[dict[Browser, RequestInterceptor]] = {}

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._session: CDPSession | None = None
        self._contexts: dict[str, DormantContext] = {}
        self._lock = anyio.Lock()
        self._blocked: tuple[JSON, ...] = ()
        self._paused_origins: frozenset[str] = frozenset()
        self._blocked_origins: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<RequestInterceptor contexts={len(self._contexts)} origins={len(self._paused_origins)}>"

    @classmethod
    def for_browser(cls, browser: Browser) -> RequestInterceptor:
        """Return the interceptor of a browser, always the same one until forget()."""
        return cls._of_browsers.setdefault(browser, cls(browser))

    @classmethod
    def forget(cls, browser: Browser) -> None:
        """Remove the interceptor of a browser that is closed or gone."""
        cls._of_browsers.pop(browser, None)

    async def session(self) -> CDPSession:
        """Return the DevTools session of the browser as a whole."""
        async with self._lock:
            return await self._open_session()

    async def _open_session(self) -> CDPSession:
        if self._session is None:
            self._session = await self._browser.new_browser_cdp_session()
            self._session.on("Fetch.requestPaused", self._on_pause)
        return self._session

    async def refuse_schemes(self) -> None:
        """Refuse, in all contexts, every request that the filtering proxy would not see."""
        async with self._lock:
            if not self._blocked:
                self._blocked = _BLOCKED_PATTERNS
                await self._set_patterns()

    async def add_context(self, context_id: str, context: DormantContext) -> None:
        """Begin to pause documents of the dormant origins of a context."""
        self._contexts[context_id] = context
        await self.update_patterns()

    async def remove_context(self, context_id: str) -> None:
        """Forget a context that is gone."""
        if self._contexts.pop(context_id, None) is not None:
            await self.update_patterns()

    async def update_patterns(self) -> None:
        """Update the paused origins after the dormant or blocked origins of a context have changed."""
        async with self._lock:
            contexts = self._contexts.values()
            origins = frozenset(o for context in contexts for o in context.dormant)
            blocked = frozenset(o for context in contexts for o in context.blocked)
            if (origins, blocked) != (self._paused_origins, self._blocked_origins):
                self._paused_origins, self._blocked_origins = origins, blocked
                await self._set_patterns()

    async def _set_patterns(self) -> None:
        session = await self._open_session()
        documents = [
            {"urlPattern": _literal(origin) + "/*", "resourceType": "Document"}
            for origin in sorted(self._paused_origins)
        ]
        everything = [
            {"urlPattern": _literal(origin) + "/*"} for origin in sorted(self._blocked_origins)
        ]
        patterns = [*self._blocked, *documents, *everything]
        if patterns:
            await send_command(session, "Fetch.enable", {"patterns": patterns})
        else:
            await send_command(session, "Fetch.disable")

    async def _on_pause(self, event: dict[str, Any]) -> None:
        assert self._session is not None
        origin = origin_of(event["request"]["url"])
        if origin is None or await self._is_blocked(origin, event["frameId"]):
            with suppress(Exception):
                failure = {"requestId": event["requestId"], "errorReason": "BlockedByClient"}
                await send_command(self._session, "Fetch.failRequest", failure)
            return
        try:
            with anyio.move_on_after(RESTORE_SECONDS) as scope:
                await self._restore_storage(origin, event["frameId"])
            if scope.cancelled_caught:
                logger.warning("a page went on without its storage after %g s", RESTORE_SECONDS)
        except Exception:
            logger.debug("the storage of an origin was not restored", exc_info=True)
        finally:
            with suppress(Exception):
                request = {"requestId": event["requestId"]}
                await send_command(self._session, "Fetch.continueRequest", request)

    async def _is_blocked(self, origin: str, frame: str) -> bool:
        if origin not in self._blocked_origins:
            return False
        return any(origin in context.blocked for context in await self._contexts_of(frame))

    async def _restore_storage(self, origin: str, frame: str) -> None:
        for context in await self._contexts_of(frame):
            if origin in context.dormant:
                await context.restore_origin(origin)

    async def _contexts_of(self, frame: str) -> list[DormantContext]:
        """Return the context of a frame, or all contexts if it is unknown, such as that of a service worker."""
        if len(self._contexts) > 1:
            with suppress(Exception):
                assert self._session is not None
                target = await send_command(
                    self._session, "Target.getTargetInfo", {"targetId": frame}
                )
                context = self._contexts.get(target["targetInfo"].get("browserContextId", ""))
                return [context] if context is not None else []
            # Most subframes have no target of their own.
            for context in list(self._contexts.values()):
                if await context.has_frame(frame):
                    return [context]
        return list(self._contexts.values())


def _literal(text: str) -> str:
    return "".join("\\" + letter if letter in "*?\\" else letter for letter in text)
