"""Renamed tools of the configured services."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ...sessions.services import ToolSpec
from ...tools.browser.config import BrowserConfig
from ...tools.catalog import Catalog, Offer
from ...tools.own.names import own_names
from ..config.model import Config, ServiceConfig

logger = logging.getLogger("statehold.server")

HELD_NAMES: Final = 10_000


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


def configured_renames(config: Config, tools: Mapping[str, Sequence[ToolSpec]]) -> dict[str, str]:
    """Return a line for each service with renamed tools. Services without known tools are left out."""
    offers = [
        offer_of(name, settings, tools[name])
        for name, settings in config.enabled_services().items()
        if name in tools
    ]
    return Catalog(
        offers, reserved_names=own_names(config.toolsets, shares=config.needs_token)
    ).renames_by_service()


def hold_names(holders: dict[str, str], services: Mapping[str, str]) -> None:
    """Note the service of each name in a list that clients have. It keeps the name until the server restarts.

    A service holds at most HELD_NAMES, so that one that renames its tools for ever takes no more memory.
    """
    new_names = [name for name in services if name not in holders]
    counts = Counter(holders.values()) if new_names else Counter[str]()
    for name in new_names:
        service = services[name]
        if counts[service] < HELD_NAMES:
            holders[name] = service
            counts[service] += 1


def log_renames(catalog: Catalog, logged: Mapping[str, str]) -> dict[str, str]:
    """Log the renamed tools of each service that are not `logged` yet, and return the lines about all of them."""
    renames = catalog.renames_by_service()
    for service, line in renames.items():
        if line != logged.get(service):
            logger.warning("service %s: %s", service, line)
    return renames


__all__ = ["configured_renames", "hold_names", "log_renames", "offer_of"]
