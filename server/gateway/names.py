"""The names of the tools and prompts of the configured services."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...sessions.json_codec import JSON
from ...sessions.services import ToolSpec
from ...tools.browser.config import BrowserConfig
from ...tools.catalog import Catalog, Offer
from ...tools.own.toolsets import own_names
from ...tools.tool_names import Rename, distinct_names, own_prefix
from ...tools.upstream.identity import config_hash
from ...tools.upstream.profile_file import FOLDER, ProfileFile, replace_file
from ..config.model import Config, ServiceConfig

logger = logging.getLogger("statehold.server")

MAX_HELD_NAMES: Final = 10_000
"""Most names of one kind that a service holds, so that one that renames its tools for ever takes no more memory."""
LONGEST_NAME: Final = 256
"""Characters of the longest name that is held; a prompt may have any name."""
FILE: Final = "names.json"

Kind: TypeAlias = Literal["tool", "prompt"]
NamedPrompts: TypeAlias = dict[str, tuple[str, JSON]]
"""Service and prompt by the name in the list."""


class _StoredNames(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    tool: dict[str, list[str]] = Field(default_factory=dict)
    """The names of tools by service, in the order of the configuration."""
    prompt: dict[str, list[str]] = Field(default_factory=dict)


class HeldNames:
    """The names that clients know, each with its service, which keeps it. It lives as long as the gateway.

    They are stored in `<data>/profiles/names.json`, so that services have the same names at every start, whichever starts
    first. Stored names count while their services have the same order in the configuration, and as far as the configuration
    still allows a service its name. Several processes may share a data folder: write() keeps the names of other services.
    """

    def __init__(self, config: Config) -> None:
        self.tools: dict[str, str] = {}
        self.prompts: dict[str, str] = {}
        self.is_changed = False
        """Whether there are names that write() has not stored."""
        self.on_changed: Callable[[], None] | None = None
        """Called after a change."""
        self._services = dict(config.enabled_services())
        self._path = None if config.ephemeral else config.data / FOLDER / FILE

    def hold(self, kind: Kind, services: Mapping[str, str]) -> None:
        """Note the service of each name that clients know by now; a name that has a service already stays with it."""
        holders = self.tools if kind == "tool" else self.prompts
        new_names = [name for name in services if name not in holders and len(name) <= LONGEST_NAME]
        if not new_names:
            return
        counts = Counter(holders.values())
        for name in new_names:
            service = services[name]
            if counts[service] < MAX_HELD_NAMES:
                holders[name] = service
                counts[service] += 1
                self.is_changed = self._path is not None
        if self.is_changed and self.on_changed is not None:
            self.on_changed()

    def read(self) -> None:
        """Hold the names that an earlier process stored. Blocks."""
        content = self._read()
        for kind, stored_names, holders in self._kinds(content):
            if [each for each in stored_names if each in self._services] != [
                each for each in self._services if each in stored_names
            ]:
                continue
            for service, settings in self._services.items():
                offer = offer_of(service, settings, ())
                for name in stored_names.get(service, ())[:MAX_HELD_NAMES]:
                    is_allowed = (
                        offer.may_have(name) if kind == "tool" else offer.may_have_prompt(name)
                    )
                    if is_allowed:
                        holders.setdefault(name, service)

    def write(self) -> None:
        """Store the names. Blocks. A failure is only logged: the next process then takes the order of the configuration."""
        self.is_changed = False
        if self._path is None:
            return
        content = self._read()
        for _, stored_names, holders in self._kinds(content):
            foreign_names = {
                service: names
                for service, names in stored_names.items()
                if service not in self._services
            }
            stored_names.clear()
            for service in self._services:
                names = [name for name, holder in holders.items() if holder == service]
                if names:
                    stored_names[service] = names
            stored_names |= foreign_names
        try:
            replace_file(self._path, json.dumps(content.model_dump()))
        except (OSError, ValueError) as error:
            logger.warning("the names of tools could not be stored: %s", error)

    def _read(self) -> _StoredNames:
        if self._path is None:
            return _StoredNames()
        try:
            return _StoredNames.model_validate(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return _StoredNames()
        except (OSError, ValueError, ValidationError, RecursionError) as error:
            logger.info("the stored names of tools are ignored: %s", type(error).__name__)
            return _StoredNames()

    def _kinds(
        self, content: _StoredNames
    ) -> Iterator[tuple[Kind, dict[str, list[str]], dict[str, str]]]:
        yield "tool", content.tool, self.tools
        yield "prompt", content.prompt, self.prompts


def offer_of(name: str, settings: ServiceConfig, tools: Sequence[ToolSpec]) -> Offer:
    """Return the contribution of a service to the tool list."""
    return Offer(
        name,
        tools,
        settings.prefix,
        settings.include,
        tuple(settings.exclude),
        is_own=isinstance(settings, BrowserConfig),
    )


def name_prompts(
    services: Mapping[str, ServiceConfig],
    prompts: Mapping[str, Sequence[JSON]],
    holders: Mapping[str, str],
) -> tuple[NamedPrompts, list[Rename]]:
    """Return the prompts of services by their names in the list, and the renamed ones; the rule is that of tools."""
    named: NamedPrompts = {}
    renames: list[Rename] = []
    for service, settings in services.items():
        by_name = {prompt["name"]: prompt for prompt in reversed(prompts.get(service, ()))}
        wanted_names = {name: settings.prefix + name for name in reversed(by_name)}
        held_names = {name: holder for name, holder in holders.items() if holder != service}
        prefix = own_prefix(service) + settings.prefix
        names = distinct_names(
            wanted_names,
            named.keys() | held_names.keys(),
            lambda name, prefix=prefix: prefix + name,
        )
        for own_name, name in names.items():
            wanted_name = wanted_names[own_name]
            if name != wanted_name:
                holder = named[wanted_name][0] if wanted_name in named else held_names[wanted_name]
                renames.append(Rename(service, wanted_name, name, holder, "prompt"))
            named[name] = service, by_name[own_name]
    return named, renames


def configured_renames(
    config: Config,
    tools: Mapping[str, Sequence[ToolSpec]],
    prompts: Mapping[str, Sequence[JSON]],
) -> dict[str, str]:
    """Return a line for each service with renamed tools or prompts, as a process with this configuration lists them.

    Services whose tools are not given count with those that an earlier process stored. Blocks.
    """
    names = HeldNames(config)
    names.read()
    services = config.enabled_services()
    all_tools, all_prompts = dict(tools), dict(prompts)
    for name, service in config.upstreams().items():
        data = None if config.ephemeral else config.data
        profile = None if name in tools else ProfileFile(data, name, config_hash(service)).read()
        if profile is not None:
            all_tools[name], all_prompts[name] = profile.tools, profile.prompts
    catalog = Catalog(
        [offer_of(name, services[name], all_tools[name]) for name in services if name in all_tools],
        reserved_names=own_names(config.toolsets, shares=config.needs_token),
        holders=names.tools,
    )
    _, prompt_renames = name_prompts(services, all_prompts, names.prompts)
    return catalog.renames_by_service(prompt_renames)


def log_renames(renames: Mapping[str, str], logged: Mapping[str, str]) -> None:
    """Log the lines about the renamed tools or prompts of each service that are not `logged` yet."""
    for service, line in renames.items():
        if line != logged.get(service):
            logger.warning("service %s: %s", service, line)
