"""The introduction of the server to a client: its instructions, the extensions of its services, and its subscriptions."""

from __future__ import annotations

from typing import Any, Final, cast

import anyio

from ...sessions.attribution import attribute_text
from ...sessions.json_codec import JSON
from ...tools.upstream.service import UpstreamService
from ..gateway.gateway import Gateway, ttl_ms
from .extensions import declared_capabilities

INSTRUCTION_SECONDS: Final = 2.0
"""Seconds that the introduction waits for services that were not probed yet. Their tools are listed later in any case."""

_PINNED: Final = (
    "Every tool runs in one session that is kept for you between calls and connections."
)
_NAMED: Final = (
    "Tools run in sessions. Call session_create once, then pass its session_id to every tool. "
    "A session outlives your connection; session_list shows the ones you have."
)


async def add_introduction(
    gateway: Gateway, result: JSON, note: str | None, *, is_pinned: bool, own_service: str | None
) -> JSON:
    """Return an `InitializeResult` or `DiscoverResult` with our instructions, and the capabilities that services add.

    `own_service` is the service whose resources the caller addresses by their own URIs, if there is one. `note` stands
    before the instructions.
    """
    with anyio.move_on_after(INSTRUCTION_SECONDS):
        await gateway.probes.wait_for_lists()
    capabilities: JSON = dict(result.get("capabilities") or {})
    upstream = None if own_service is None else gateway.services[own_service]
    if isinstance(upstream, UpstreamService) and upstream.profile is not None:
        declared_resources: Any = upstream.profile.peer.capabilities.get("resources")
        if isinstance(declared_resources, dict):
            upstream_resources = cast("JSON", declared_resources)
            own_resources: JSON = dict(capabilities.get("resources") or {})
            own_resources["subscribe"] = bool(
                own_resources.get("subscribe") or upstream_resources.get("subscribe")
            )
            own_resources["listChanged"] = bool(upstream_resources.get("listChanged"))
            capabilities["resources"] = own_resources
    declared = declared_capabilities(gateway, own_service)
    extensions: JSON = {
        **declared.pop("extensions"),
        **(capabilities.pop("extensions", None) or {}),
    }
    capabilities = {**declared, **capabilities}
    if extensions:
        capabilities["extensions"] = extensions
    text = instructions(gateway, is_pinned=is_pinned)
    return {
        **result,
        "capabilities": capabilities,
        "instructions": "\n\n".join(filter(None, (note, text))),
        **({"ttlMs": ttl_ms(gateway)} if "supportedVersions" in result else {}),
    }


def instructions(gateway: Gateway, *, is_pinned: bool) -> str:
    """Return our instructions and those of the services that were probed by now.

    A client of a pinned session with a single service expects that server: it gets the instructions of that server alone.
    """
    by_service = _instructions_of(gateway)
    if is_pinned and by_service and len(gateway.services) == 1:
        return next(iter(by_service.values()))
    parts = [_PINNED if is_pinned else _NAMED]
    parts += [f"{name}: {text}" for name, text in by_service.items()]
    parts += [
        f"{name}: its tools are listed when your user is logged in there. Ask them to open {login.address} in a browser "
        "of this machine."
        for name, login in gateway.probes.missing_logins.items()
    ]
    return "\n\n".join(parts)


def _instructions_of(gateway: Gateway) -> dict[str, str]:
    """Return the instructions of the services that have some, by service."""
    found: dict[str, str] = {}
    for name, service in gateway.services.items():
        profile = service.profile if isinstance(service, UpstreamService) else None
        if profile is not None and profile.peer.instructions:
            found[name] = attribute_text(profile.peer.instructions, name)
    return found
