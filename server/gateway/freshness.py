"""The time for which clients may keep the lists of tools, prompts and resource templates."""

from __future__ import annotations

from typing import Final, cast

from ...sessions.json_codec import JSON
from ...sessions.services import Service
from ...tools.upstream.service import UpstreamService
from .gateway import Gateway

STEADY_MS: Final = 60_000
"""The time for lists that depend on the configuration only, in milliseconds."""


def ttl_ms(gateway: Gateway) -> int:
    """Return for how long a client may keep a list: not at all while a service starts, or where one can change its list."""
    if not gateway.probes.are_services_known or any(map(_changes_lists, gateway.services.values())):
        return 0
    return STEADY_MS


def _changes_lists(service: Service) -> bool:
    """Whether a service declares that its lists may change while it runs."""
    if not isinstance(service, UpstreamService):
        return False
    profile = service.profile
    if profile is None:
        return True
    declared = (profile.peer.capabilities.get(kind) for kind in ("tools", "prompts"))
    return any(
        isinstance(part, dict) and bool(cast("JSON", part).get("listChanged")) for part in declared
    )
