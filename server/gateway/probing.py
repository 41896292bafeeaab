"""The probes of the services of one process: requests for their tool lists, in the background."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import anyio

from ...sessions.calls.deadline import WaitProgress
from ...sessions.errors import PendingLogin, ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON
from ...sessions.one_line import plural
from ...sessions.services import Service, ToolSpec
from ...tools.catalog import Catalog, CatalogEntry, Naming
from ...tools.upstream.service import UpstreamService
from .list_updates import ListUpdates
from .tool_list import ToolList

logger = logging.getLogger("statehold.server")

RETRY_SECONDS = 30.0
"""Seconds until a failed probe of a service is repeated."""
ORPHANS_SECONDS = 2.0
MAX_CALL_RETRIES: Final = 2
CALL_RETRY_SECONDS = 5.0
"""Calls repeat the failed probe of a service MAX_CALL_RETRIES times in so many seconds. Others get its error at once."""
LIST_WAIT_SECONDS = 10.0
"""Seconds after the start that the tool list waits for slow services; later ones are added, and clients notified."""


class ProbeRepeats:
    """The repetitions of the failed probe of one service because of calls. It lives as long as the probes."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._ended_at = deque([-math.inf] * MAX_CALL_RETRIES, maxlen=MAX_CALL_RETRIES)

    async def run(self, asked_at: float, probe: Callable[[], Awaitable[None]]) -> None:
        """Probe, unless that was done since `asked_at` or as often as it may be."""
        async with self._lock:
            now = anyio.current_time()
            if self._ended_at[-1] >= asked_at or now < self._ended_at[0] + CALL_RETRY_SECONDS:
                return
            try:
                await probe()
            finally:
                self._ended_at.append(anyio.current_time())


class Probes:
    """Probes each service once, again while that fails, and puts its tools into the tool list.

    recall() offers the tools that are known without starting anything; run() probes every other service, and ends with the
    first probes of all. Probes that can wait do so until `orphans_resumed` is set: the sessions of an earlier process are
    resumed. A list waits a few seconds for services without known tools, a call waits only for the service that
    has the tool. end() ends all waits; those that found nothing get ServiceUnavailable.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        tools: ToolList,
        updates: ListUpdates,
        orphans_resumed: anyio.Event | None,
    ) -> None:
        self.on_prompts_changed: list[Callable[[], Awaitable[None]]] = []
        """Called when the prompts have changed, to notify clients."""
        self.on_done: list[Callable[[], None]] = []
        """Called when every service was probed, before changes of their lists are read."""
        self.ask_again: Callable[[Literal["tools", "prompts"]], Awaitable[None]] | None = None
        """Asks services for a list of which they announce no changes; see ListWatcher.ask_again()."""
        self._services = services
        self._tools = tools
        self._updates = updates
        self._orphans_resumed = orphans_resumed
        self._recalled: set[str] = set()
        """Services that offer the tools stored by an earlier process, because their first probe still runs."""
        self._problems: dict[str, str] = {}
        self.missing_logins: dict[str, PendingLogin] = {}
        """The logins for want of which services could not be probed."""
        self.needed_logins: dict[str, str] = {}
        """The names of those logins, also of others' and of keys, by service."""
        self._are_done = anyio.Event()
        self._probed = anyio.Event()
        """Set, and replaced by a new event, when a service was probed, added or changed."""
        self._is_ended = False
        self._wait_deadline = math.inf
        self._is_listed = False
        """Whether a client was given a list."""
        self._repeats: dict[str, ProbeRepeats] = {}
        """The repetitions of failed probes because of calls, by service."""
        self._capabilities: dict[str, JSON] = {}
        """The capabilities of each service when its tools were listed."""

    @property
    def are_services_known(self) -> bool:
        """Whether every service was probed in this process, and its tools are listed."""
        return self._are_done.is_set() and not self._problems and not self._recalled

    @property
    def problems(self) -> Mapping[str, str]:
        """Services that could not be probed, with the reason."""
        return self._problems

    async def recall(self) -> bool:
        """Offer the tools that are known before anything is started; called once, before run().

        Those are the tools of the browser, and those that earlier processes stored of other services. Return whether the
        tools of all services are known.
        """
        self._wait_deadline = anyio.current_time() + LIST_WAIT_SECONDS
        for name, service in self._services.items():
            if not isinstance(service, UpstreamService):
                await self._probe_first(name, service)
            elif await service.recall():
                self._recalled.add(name)
                self.list(name, await service.tools())
        # Clients know the names from the earlier process.
        self._tools.hold_names()
        return not any(map(self._is_unprobed, self._services))

    async def run(self) -> None:
        """Probe the services, and repeat the probes that fail until they succeed."""
        try:
            async with anyio.create_task_group() as tasks:
                for name, service in self._services.items():
                    if name in self._recalled or self._is_unprobed(name):
                        tasks.start_soon(self._probe_first, name, service)
        finally:
            # A cancelled or failed probe does not run again.
            self._end_waits()
        for note in self.on_done:
            note()
        while self._problems:
            with anyio.move_on_after(RETRY_SECONDS):
                await self._wait_for_login()
            for name in tuple(self._problems):
                await self.probe_again(name)

    async def _wait_for_login(self) -> None:
        """Return when the person of one of the missing logins is logged in."""
        async with anyio.create_task_group() as tasks:

            async def wait(login: PendingLogin) -> None:
                if await login.wait():
                    tasks.cancel_scope.cancel()

            for login in self.missing_logins.values():
                tasks.start_soon(wait, login)
            await anyio.sleep_forever()

    def end(self) -> None:
        """End all waits, since the gateway is left."""
        self._is_ended = True
        self._end_waits()

    def _end_waits(self) -> None:
        """End the waits for the first probes, of which none runs any more."""
        self._are_done.set()
        self._tools.is_complete = True
        self.wake_waiters()

    async def _probe_first(self, name: str, service: Service) -> None:
        is_recalled = name in self._recalled
        if is_recalled and self._orphans_resumed is not None:
            with anyio.move_on_after(ORPHANS_SECONDS):
                await self._orphans_resumed.wait()
        tools = await self._probe(name, service)
        if tools is not None and is_recalled:
            await self.update_tools(name, tools)
        elif tools is not None:
            is_late = anyio.current_time() > self._wait_deadline
            self.list(name, tools)
            if is_late:
                await self._tools.notify_changed()
        self.wake_waiters()

    async def _probe(self, name: str, service: Service) -> Sequence[ToolSpec] | None:
        try:
            if isinstance(service, UpstreamService) and name in self._recalled:
                await self._renew(service)
            tools = await service.tools()
        except SessionError as error:
            if isinstance(error, ServiceUnavailable) and error.login is not None:
                self.missing_logins[name] = error.login
            else:
                self.missing_logins.pop(name, None)
            self.needed_logins.pop(name, None)
            if isinstance(error, ServiceUnavailable) and error.needs_login:
                self.needed_logins[name] = error.needs_login
            if self._problems.get(name) != error.message:
                # The address is a secret of its user.
                secret = (
                    "" if name not in self.missing_logins else self.missing_logins[name].address
                )
                words = error.message.replace(secret, "its login page") if secret else error.message
                logger.warning("service %s is not available: %s", name, words)
            self._problems[name] = error.message
            return None
        self._problems.pop(name, None)
        self.missing_logins.pop(name, None)
        self.needed_logins.pop(name, None)
        logger.info("service %s is available: %s", name, plural(len(tools), "tool"))
        return tools

    async def _renew(self, service: UpstreamService) -> None:
        before = service.prompts
        await service.refresh()
        self._recalled.discard(service.name)
        if service.prompts != before:
            await self.notify_prompts_changed()

    @property
    def are_names_known(self) -> bool:
        """Whether clients may know the names in lists; before that, the configuration decides by its order."""
        return self._is_listed or self.are_services_known

    def list(self, name: str, tools: Sequence[ToolSpec]) -> None:
        """Offer these tools of a service from now on."""
        if self.are_names_known:
            self._tools.hold_names()
        self._tools.set(name, tools)
        self._capabilities[name] = self._capabilities_of(name)

    async def update_tools(self, name: str, tools: Sequence[ToolSpec]) -> bool:
        """Set the tool list of a service, and notify clients if it differs. Return whether it does.

        No notification tells of other capabilities: clients ask for them when they are told of a list.
        """
        known = self._tools.known(name)
        if (
            known is not None
            and [spec.definition for spec in known] == [spec.definition for spec in tools]
            and self._capabilities.get(name) == self._capabilities_of(name)
        ):
            return False
        self.list(name, tools)
        self.wake_waiters()
        await self._tools.notify_changed()
        return True

    def _capabilities_of(self, name: str) -> JSON:
        service = self._services.get(name)
        profile = service.profile if isinstance(service, UpstreamService) else None
        return {} if profile is None else profile.peer.capabilities

    async def notify_prompts_changed(self) -> None:
        """Notify every client that the prompts changed."""
        for notify in self.on_prompts_changed:
            await notify()

    def wake_waiters(self) -> None:
        """Have all waits look at the list again."""
        self._probed.set()
        self._probed = anyio.Event()

    async def ready(self) -> None:
        """Wait until every service was probed.

        Raises:
            ServiceUnavailable: the gateway is left meanwhile.
        """
        await self._are_done.wait()
        self._refuse_when_ended()

    async def wait_next(self) -> bool:
        """Wait until one more service was probed. Return False at once when all were.

        Raises:
            ServiceUnavailable: the gateway is left meanwhile.
        """
        if self._are_done.is_set():
            return False
        await self._probed.wait()
        self._refuse_when_ended()
        return True

    async def catalog(self, naming: Naming) -> Catalog:
        """Return the tool list, waiting a while for services that were not probed yet.

        Raises:
            ServiceUnavailable: the gateway is left meanwhile.
        """
        await self.wait_for_lists()
        self._is_listed = True
        self._tools.hold_names(naming)
        return self._tools.catalog(naming)

    async def wait_for_lists(self) -> None:
        """Wait a while for services that were not probed yet, and for changes of lists that were announced.

        Raises:
            ServiceUnavailable: the gateway is left meanwhile.
        """
        await self._updates.settle()
        with anyio.CancelScope(deadline=self._wait_deadline):
            while not self._are_done.is_set() and any(map(self._is_unprobed, self._services)):
                await self._probed.wait()
        self._refuse_when_ended()

    async def entry(self, name: str, naming: Naming, waiting: WaitProgress) -> CatalogEntry | None:
        """Return the entry of a tool in the list, None for an unknown tool.

        Waits until a service has the tool or all services were probed; meanwhile `waiting` reports the starting services to
        the caller. If a service that was not probed yet precedes the found one in the configuration, and may have a tool of
        the same name, the wait for it is as long as that of a list. Failed probes of services that may have the tool are
        repeated, twice at most in CALL_RETRY_SECONDS: their cause may be mended.

        Raises:
            ServiceUnavailable: the gateway is left before the tool was found.
        """
        if self._are_done.is_set():
            entry = self._tools.entry(name, naming)
            if entry is None:
                self._refuse_when_ended()
                await self._updates.settle()
                entry = self._tools.entry(name, naming)
            if entry is None and self._unavailable_services_of(name):
                await self._repeat_failed(name)
                entry = self._tools.entry(name, naming)
            if entry is None and self.ask_again is not None:
                await self.ask_again("tools")
                entry = self._tools.entry(name, naming)
        else:
            starting = partial(self._starting, name, naming)
            find = partial(self._find, name, naming)
            entry = await (waiting.run_service_start(starting, find) if starting() else find())
        if entry is not None:
            self._tools.hold_name(entry)
        return entry

    async def _find(self, name: str, naming: Naming) -> CatalogEntry | None:
        while True:
            entry = self._tools.entry(name, naming)
            if entry is None:
                self._refuse_when_ended()
            if self._are_done.is_set():
                return entry
            deadline = math.inf
            if entry is not None:
                deadline = self._wait_deadline if self._may_belong_to_earlier(entry) else -math.inf
            if anyio.current_time() >= deadline:
                return entry
            with anyio.CancelScope(deadline=deadline):
                await self._probed.wait()

    def _starting(self, name: str, naming: Naming) -> str:
        """Return a message naming the services that a call of a tool waits for; empty when _find() returns at once."""
        entry = self._tools.entry(name, naming)
        if self._are_done.is_set() or (
            entry is not None and not self._may_belong_to_earlier(entry)
        ):
            return ""
        names = [
            service
            for service in self._services
            if service in self._recalled or self._is_unprobed(service)
        ]
        likely = [each for each in names if self._tools.offer(each).may_have(name)] or names
        return f"Starting service{'s' if len(likely) > 1 else ''} {', '.join(likely)}"

    def _may_belong_to_earlier(self, entry: CatalogEntry) -> bool:
        """Whether an unprobed service that precedes the entry's service may have a tool of the same name."""
        for name in self._services:
            if name == entry.service:
                return False
            if self._is_unprobed(name) and self._tools.offer(name).may_have(entry.name):
                return True
        return False

    def missing_tool_reason(self, name: str) -> str | None:
        """Return why a tool outside the list may still exist: services that may have it could not be probed."""
        likely = self._unavailable_services_of(name)
        return " ".join(f"{each} is unavailable: {self._problems[each]}" for each in likely) or None

    def missing_login(self, name: str) -> tuple[str, PendingLogin] | None:
        """Return the service that has to have a tool outside the list, and the login that it could not be probed without."""
        likely = self._unavailable_services_of(name)
        login = self.missing_logins.get(likely[0]) if len(likely) == 1 else None
        return None if login is None else (likely[0], login)

    def _unavailable_services_of(self, name: str) -> list[str]:
        candidates = [each for each in self._problems if self._tools.offer(each).may_have(name)]
        # A prefix names the service; without one, any of them may have the tool.
        return [each for each in candidates if self._tools.prefix(each)] or candidates

    async def _repeat_failed(self, name: str) -> None:
        """Probe the unavailable services that may have a tool again; those that were often probed lately are left out."""
        asked_at = anyio.current_time()
        with anyio.move_on_after(LIST_WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for service in self._unavailable_services_of(name):
                    repeats = self._repeats.setdefault(service, ProbeRepeats())
                    tasks.start_soon(repeats.run, asked_at, partial(self.probe_again, service))

    async def probe_again(self, name: str) -> None:
        """Probe a service that could not be probed, and add its tools to the list."""
        tools = await self._probe(name, self._services[name])
        if tools is not None:
            await self.update_tools(name, tools)

    def _is_unprobed(self, name: str) -> bool:
        """Whether the first probe of a service still runs, and no earlier process stored its tools."""
        return self._tools.known(name) is None and name not in self._problems

    def _refuse_when_ended(self) -> None:
        if self._is_ended:
            raise ServiceUnavailable("Statehold is stopping.", recovery="Open it again.")
