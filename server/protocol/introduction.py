"""The introduction of the server to a client: its instructions, and its capability of subscriptions."""

from __future__ import annotations

from typing import Any, Final, cast

import anyio

from ...sessions.json_codec import JSON
from ...tools.upstream.service import UpstreamService
from ..gateway.gateway import Gateway

INSTRUCTION_SECONDS: Final = 2.0
"""Seconds that the introduction waits for services that were not probed yet. Their tools are listed later in any case."""

_PINNED: Final = (
    "Every tool runs in one session that is kept for you between calls and connections."
)
_NAMED: Final = (
    "Tools run in sessions. Call session_create once, then pass its session_id to every tool. "
    "A session outlives your connection; session_list shows the ones you have."
)


async def introduced(
    gateway: Gateway, found: JSON, *, pinned: bool, own_service: str | None
) -> JSON:
    """Return an `InitializeResult` or `DiscoverResult` that fits the session of the caller.

    `own_service` is the service whose resources the caller addresses by their own URIs, if there is one.
    """
    with anyio.move_on_after(INSTRUCTION_SECONDS):
        await gateway.catalog("explicit")
    capabilities: JSON = dict(found.get("capabilities") or {})
    upstream = None if own_service is None else gateway.services[own_service]
    if isinstance(upstream, UpstreamService) and upstream.profile is not None:
        declared: Any = upstream.profile.peer.capabilities.get("resources")
        if isinstance(declared, dict):
            resources = cast("JSON", declared)
            ours: JSON = dict(capabilities.get("resources") or {})
            ours["subscribe"] = bool(ours.get("subscribe") or resources.get("subscribe"))
            ours["listChanged"] = bool(resources.get("listChanged"))
            capabilities["resources"] = ours
    return {
        **found,
        "capabilities": capabilities,
        "instructions": instructions(gateway, pinned=pinned),
    }


def instructions(gateway: Gateway, *, pinned: bool) -> str:
    """Return our instructions and those of the services that were probed by now."""
    parts = [_PINNED if pinned else _NAMED]
    for name, service in gateway.services.items():
        profile = service.profile if isinstance(service, UpstreamService) else None
        if profile is not None and profile.peer.instructions:
            parts.append(f"{name}: {profile.peer.instructions}")
    return "\n\n".join(parts)


__all__ = ["instructions", "introduced"]
