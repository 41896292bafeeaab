"""The merged tool list of one process: the tools of its services, and Statehold's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...sessions.services import ToolSpec
from ...tools.browser.config import BrowserConfig
from ...tools.catalog import SESSION_ARGUMENT, Catalog, CatalogEntry, Naming, Offer
from ...tools.own.own_tool import OwnTool
from ..config.model import Config, ServiceConfig
from .names import HeldNames, log_renames, offer_of
from .uris import page_uri


class ToolList:
    """The tools that clients are offered. It lives as long as the gateway, and never waits.

    A service without known tools has none in the list. A service keeps the names that clients know; see HeldNames.
    """

    def __init__(
        self,
        config: Config,
        services: Mapping[str, ServiceConfig],
        own: Mapping[str, OwnTool],
        names: HeldNames,
    ) -> None:
        self.own = own
        """Statehold's own tools by name, in the order of the list."""
        self.on_changed: list[Callable[[], Awaitable[None]]] = []
        """Called when the list has changed, to notify clients."""
        self.is_complete = False
        """Whether every service was probed."""
        self._settings = dict(services)
        self._header = config.server.session_header
        self._asked = "toolsets" in config.model_fields_set
        self._naming: Naming = "explicit" if config.server.session is None else "pinned"
        self._tools: dict[str, Sequence[ToolSpec]] = {}
        self._catalogs: dict[Naming, Catalog] = {}
        self._names = names
        self._renames: dict[str, str] = {}

    def add_service(self, name: str, settings: ServiceConfig) -> None:
        """Take a service into the list, behind the others, as soon as its tools are known."""
        self._settings[name] = settings

    def drop_service(self, name: str) -> None:
        """Take a service out of the list again, for which no client knows a tool yet."""
        self._settings.pop(name, None)
        self._tools.pop(name, None)
        self._catalogs.clear()

    def known(self, service: str) -> Sequence[ToolSpec] | None:
        """Return the tools of a service; None before they are known."""
        return self._tools.get(service)

    def set(self, service: str, tools: Sequence[ToolSpec]) -> None:
        """Offer these tools of a service from now on, and log the renamed ones."""
        self._tools[service] = tools
        self._catalogs.clear()
        logged, self._renames = self._renames, self.catalog(self._naming).renames_by_service()
        log_renames(self._renames, logged)

    def renames(self, service: str) -> str | None:
        """Return a line about the renamed tools of a service; None if it has none."""
        return self._renames.get(service)

    def hold_names(self, naming: Naming | None = None) -> None:
        """Note the services of the names in the list, since clients know them by now."""
        entries = self.catalog(naming or self._naming).entries
        self._names.hold("tool", {name: tool.service for name, tool in entries.items()})

    def hold_name(self, entry: CatalogEntry) -> None:
        """Note the service of a tool that a client has called."""
        if entry.name not in self._names.tools:
            self._names.hold("tool", {entry.name: entry.service})

    def session_argument(self, service: str) -> str:
        """Return the name of our session argument in the tools of a service."""
        return self.catalog("explicit").session_arguments.get(service, SESSION_ARGUMENT)

    async def notify_changed(self) -> None:
        """Discard the cached list and notify every client."""
        self._catalogs.clear()
        for notify in self.on_changed:
            await notify()

    def catalog(self, naming: Naming) -> Catalog:
        """Return the list as callers get it who name the session like this."""
        catalog = self._catalogs.get(naming)
        if catalog is None:
            catalog = self._catalogs[naming] = self._build(naming)
        return catalog

    def _build(self, naming: Naming) -> Catalog:
        own = [
            tool.definition(naming=naming, header=self._header)
            for tool in self.own.values()
            if self._offers(tool, naming)
        ]
        has_own_uris = naming in ("pinned", "command") and len(self._settings) == 1
        return Catalog(
            [self.offer(name) for name in self._settings if name in self._tools],
            own,
            reserved_names=self.own,
            naming=naming,
            header=self._header,
            address=None if has_own_uris else page_uri,
            holders=self._names.tools,
        )

    def offer(self, service: str) -> Offer:
        """Return the contribution of a service, with the tools that are known by now."""
        return offer_of(service, self._settings[service], self._tools.get(service, ()))

    def prefix(self, service: str) -> str:
        """Return the prefix that the configuration gives to the names of a service."""
        return self._settings[service].prefix

    def entry(self, name: object, naming: Naming) -> CatalogEntry | None:
        """Return the entry of a tool of a service; None for another name."""
        return self.catalog(naming).entries.get(name) if isinstance(name, str) else None

    def called_entry(self, name: str, naming: Naming) -> CatalogEntry | None:
        """Return the entry of a tool that a client calls; None for another name, and while services are probed."""
        entry = self.catalog(naming).entries.get(name) if self.is_complete else None
        if entry is not None and name not in self._names.tools:
            self.hold_name(entry)
        return entry

    def own_tool(self, name: str, naming: Naming) -> OwnTool | None:
        """Return the tool of ours that callers who name the session like this may call, None if there is none."""
        tool = self.own.get(name)
        if tool is None:
            return None
        # An error names a command for it, though the list is as short as that of a model.
        is_named = naming == "command" and tool.pinned != "never"
        return tool if is_named or self._offers(tool, naming) else None

    def _offers(self, tool: OwnTool, naming: Naming) -> bool:
        return tool.offered(naming, asked=self._asked)

    def is_browser_tool(self, name: object, naming: Naming) -> bool:
        """Whether a tool of the built-in browser is in the list under a name."""
        entry = self.entry(name, naming)
        return entry is not None and isinstance(self._settings[entry.service], BrowserConfig)
