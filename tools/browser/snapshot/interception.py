"""Interception of requests: no document of an origin loads before the session's storage for that origin is restored.

It intercepts requests in the browser, not in a page, so redirects, popups and frames are included. It pauses only documents
of origins that are still asleep, and requests that the proxy would not see; other requests are not delayed. A Playwright
route would pause every request, and turn the browser's cache off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import anyio

from ....sessions.json_codec import JSON
from ..egress.policy import LOCAL_SCHEMES
from .world import origin_of, send_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession

logger = logging.getLogger("statehold.browser")

_REFUSED: Final = tuple({"urlPattern": f"{scheme}:*"} for scheme in LOCAL_SCHEMES)
WAKE_SECONDS: Final = 5.0
"""Seconds that a document waits for the storage of its origin; it is then loaded without."""


class DormantContext(Protocol):
    """A browser context with origins whose storage is not restored yet."""

    @property
    def asleep(self) -> Collection[str]: ...

    async def wake(self, origin: str) -> None: ...


class RequestInterceptor:
    """Intercepts requests of one browser, for all of its contexts.

    Lives as long as the browser. All methods may be called concurrently.
    """

    _of_browsers: ClassVar[dict[Browser, RequestInterceptor]] = {}

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._session: CDPSession | None = None
        self._sleepers: dict[str, DormantContext] = {}
        self._lock = anyio.Lock()
        self._refused: tuple[JSON, ...] = ()
        self._watched: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<RequestInterceptor contexts={len(self._sleepers)} origins={len(self._watched)}>"

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
            return await self._connected()

    async def _connected(self) -> CDPSession:
        if self._session is None:
            self._session = await self._browser.new_browser_cdp_session()
            self._session.on("Fetch.requestPaused", self._paused)
        return self._session

    async def refuse_schemes(self) -> None:
        """Refuse, in all contexts, every request that the filtering proxy would not see."""
        async with self._lock:
            if not self._refused:
                await self._watch(self._watched, _REFUSED)

    async def admit(self, context_id: str, sleeper: DormantContext) -> None:
        """Begin to pause documents of the sleeping origins of a context."""
        self._sleepers[context_id] = sleeper
        await self.changed()

    async def leave(self, context_id: str) -> None:
        """Forget a context that is gone."""
        if self._sleepers.pop(context_id, None) is not None:
            await self.changed()

    async def changed(self) -> None:
        """Update the paused origins after the sleeping origins of a context have changed."""
        async with self._lock:
            wanted = frozenset(o for sleeper in self._sleepers.values() for o in sleeper.asleep)
            if wanted != self._watched:
                await self._watch(wanted, self._refused)

    async def _watch(self, origins: frozenset[str], refused: tuple[JSON, ...]) -> None:
        session = await self._connected()
        patterns = [
            *refused,
            *(
                {"urlPattern": _literal(origin) + "/*", "resourceType": "Document"}
                for origin in sorted(origins)
            ),
        ]
        if patterns:
            await send_command(session, "Fetch.enable", {"patterns": patterns})
        else:
            await send_command(session, "Fetch.disable")
        self._watched, self._refused = origins, refused

    async def _paused(self, event: dict[str, Any]) -> None:
        assert self._session is not None
        origin = origin_of(event["request"]["url"])
        if origin is None:
            with suppress(Exception):
                failed = {"requestId": event["requestId"], "errorReason": "BlockedByClient"}
                await send_command(self._session, "Fetch.failRequest", failed)
            return
        try:
            with anyio.move_on_after(WAKE_SECONDS) as scope:
                await self._wake(origin, event["frameId"])
            if scope.cancelled_caught:
                logger.warning("a page went on without its storage after %g s", WAKE_SECONDS)
        except Exception:
            logger.debug("an origin was not woken", exc_info=True)
        finally:
            with suppress(Exception):
                request = {"requestId": event["requestId"]}
                await send_command(self._session, "Fetch.continueRequest", request)

    async def _wake(self, origin: str, frame: str) -> None:
        for sleeper in await self._concerned(frame):
            if origin in sleeper.asleep:
                await sleeper.wake(origin)

    async def _concerned(self, frame: str) -> list[DormantContext]:
        """Return the context of a frame, or all contexts if it is unknown: subframes have no target of their own."""
        if len(self._sleepers) > 1:
            with suppress(Exception):
                assert self._session is not None
                found = await send_command(
                    self._session, "Target.getTargetInfo", {"targetId": frame}
                )
                sleeper = self._sleepers.get(found["targetInfo"].get("browserContextId", ""))
                return [sleeper] if sleeper is not None else []
        return list(self._sleepers.values())


def _literal(text: str) -> str:
    return "".join("\\" + letter if letter in "*?\\" else letter for letter in text)


__all__ = ["DormantContext", "RequestInterceptor"]
