"""The health of a gateway, for proxies and probes: no names and no ids."""

from __future__ import annotations

from ...sessions.json_codec import JSON
from .gateway import Gateway


def readiness_of(gateway: Gateway) -> tuple[int, str]:
    """Return the HTTP status of `/readyz`, and its word: whether a proxy is to send requests to this process."""
    if gateway.registry.draining or gateway.node.is_draining:
        return 404, "draining"
    return (503, "failing") if _trouble_of(gateway) is not None else (200, "ok")


def health_of(gateway: Gateway) -> JSON:
    """Return the body of `/health`, which needs no token: counts, no names and no ids.

    The status is `ok`, `draining`, or `failing` with a `reason` when the store refuses writes or the disk is full.
    """
    trouble = _trouble_of(gateway)
    statuses = [service["status"] for service in gateway.describe_services()]
    return {
        "status": "draining" if gateway.registry.draining else "failing" if trouble else "ok",
        "services": {
            "ok": statuses.count("available"),
            "unavailable": statuses.count("unavailable"),
        },
        **({} if trouble is None else {"reason": trouble}),
    }


def _trouble_of(gateway: Gateway) -> str | None:
    """Return why sessions cannot be served, in one line without secrets; None when they can."""
    if not gateway.node.may_act():
        return "The lease of this node is over: its database does not answer."
    return gateway.store.trouble
