"""The services, the nodes and the usage of limits, as the API shows them."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from starlette.responses import Response

from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL
from ...sessions.views import timestamp
from ..control.node_list import describe_seen, read_nodes
from ..gateway.gateway import Gateway
from .calls import ApiCall, Handler
from .errors import json_response
from .openapi import openapi_document

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


class ServerDocuments:
    """The documents of one process and its store."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def handlers(self) -> dict[str, Handler]:
        return {
            "openapi": self._openapi,
            "services": self._services,
            "nodes": self._nodes,
            "usage": self._usage,
        }

    async def _openapi(self, call: ApiCall) -> Response:
        return json_response(openapi_document(version("statehold")))

    async def _services(self, call: ApiCall) -> Response:
        return json_response({"services": self._gateway.describe_services()})

    async def _nodes(self, call: ApiCall) -> Response:
        nodes = await read_nodes(cast("SQLStore", self._gateway.store))
        return json_response({"nodes": [describe_seen(node) for node in nodes]})

    async def _usage(self, call: ApiCall) -> Response:
        registry, owner = self._gateway.registry, (call.user.principal or LOCAL).key
        usage, limits = registry.quota.usage(owner), registry.core.limits.of(owner)
        content: JSON = {
            "sessions": await self._gateway.store.counts(call.user.owner),
            "sessions_limit": limits.sessions,
            "stored_bytes": usage["bytes"],
            "stored_bytes_limit": usage["limit"],
            "measured_at": timestamp(usage["measured_at"]),
            "calls_in_flight": registry.admission.in_flight(owner),
            "limits": limits.describe(),
        }
        if call.user.is_machine_user:
            content["here"] = registry.statistics()
        return json_response(content)


__all__ = ["ServerDocuments"]
