"""Renamed tools of the configured services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...sessions.services import ToolSpec
from ...tools.browser.config import BrowserConfig
from ...tools.catalog import Catalog, Offer
from ...tools.own.names import own_names
from ..config.model import Config, ServiceConfig


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
    return Catalog(offers, reserved_names=own_names(config.toolsets)).renames_by_service()


__all__ = ["configured_renames", "offer_of"]
