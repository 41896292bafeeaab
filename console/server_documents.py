"""The services, the nodes and the usage of limits, as the API shows them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Set
from importlib.metadata import version

import anyio.to_thread
from starlette.responses import Response

from ..server.gateway.gateway import Gateway
from ..server.operate.node_list import describe_seen, read_nodes
from ..sessions.json_codec import JSON
from ..sessions.records import LOCAL
from ..sessions.views import timestamp
from ..tools.processes import procfs
from .calls import ApiCall
from .errors import json_response
from .openapi import openapi_document
from .routes import ApiRoute, route


class ServerDocuments:
    """The documents of one process and its store."""

    def __init__(self, gateway: Gateway, routes: Iterable[ApiRoute]) -> None:
        """`routes` are those of the OpenAPI document."""
        self._gateway = gateway
        self._routes = routes

    @route("GET", "/openapi.json", "This document", audience="guest")
    async def openapi(self, call: ApiCall) -> Response:
        return json_response(openapi_document(version("statehold"), self._routes))

    @route("GET", "/services", "List the services of this process")
    async def services(self, call: ApiCall) -> Response:
        owner = call.user.owner
        open_connections = Counter(
            name
            for session in self._gateway.registry.owned_sessions()
            if owner in (None, session.record.owner)
            for name, binding in session.bindings.items()
            if binding.usable
        )
        services = [
            {**service, "open": open_connections[service["service"]]}
            for service in self._gateway.describe_services()
        ]
        return json_response({"services": services})

    @route("GET", "/nodes", "List the processes of the store", audience="machine")
    async def nodes(self, call: ApiCall) -> Response:
        nodes = await read_nodes(self._gateway.store)
        own, owned = self._gateway.node.id, self._gateway.registry.statistics()["owned"]
        documents = [describe_seen(node) for node in nodes]
        # A process without a lease does not store how many it holds.
        shown = [{**each, "sessions": owned} if each["node"] == own else each for each in documents]
        return json_response({"nodes": shown})

    @route("GET", "/usage", "Show what is used, and its limits")
    async def usage(self, call: ApiCall) -> Response:
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
            bindings = [b for s in registry.owned_sessions() for b in s.bindings.values()]
            pids = {pid for b in bindings if b.live is not None for pid in b.live.pids()}
            memory = await anyio.to_thread.run_sync(_memory_with, pids)
            content["here"] = {**registry.statistics(), "memory_bytes": memory}
        return json_response(content)


def _memory_with(pids: Set[int]) -> int | None:
    """Return the memory of this process and of programs that the keeper may have started; None where it is unknown."""
    own = procfs.resident_memory(os.getpid())
    return None if own is None else own + sum(procfs.tree_memory(pid) or 0 for pid in pids)
