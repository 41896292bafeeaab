"""The services, the nodes and the usage of limits as the API shows them, and its OpenAPI 3.1 document."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Set
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

import anyio.to_thread
from starlette.responses import Response

from ..access.config.auth import DEFAULT_ROLE
from ..server.gateway.gateway import Gateway
from ..server.operate.nodes import describe_seen, read_nodes
from ..sessions.errors import StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.records import LOCAL
from ..sessions.times import timestamp
from ..tools.processes import procfs
from ..tools.upstream.identity import pins_hash
from ..tools.upstream.service import UpstreamService
from .logins import Rights
from .requests import ApiModel, NoQuery
from .routes import ROUTES, ApiCall, ApiRoute, json_response, route

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_TYPES: Final = {
    "json": ("application/json", {"type": "object"}),
    "file": ("application/octet-stream", {"type": "string", "format": "binary"}),
    "frames": ("application/octet-stream", {"type": "string", "format": "binary"}),
    "events": ("text/event-stream", {"type": "string"}),
}
_NEEDS: Final[dict[Rights, str]] = {
    "embed": "",
    "view": "",
    "control": " Needs the right to control.",
}


def openapi_document(version: str, routes: Iterable[ApiRoute]) -> JSON:
    """Return the document."""
    paths: dict[str, JSON] = {}
    schemas: JSON = {"Error": _ERROR}
    for each in routes:
        operation = _operation(each, schemas)
        paths.setdefault(each.full_path, {})[each.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Statehold console", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {"Error": _ERROR_RESPONSE},
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": "__Host-statehold"}
            },
        },
    }


_ERROR: Final[JSON] = {
    "type": "object",
    "required": ["code", "message", "recovery"],
    "properties": {key: {"type": "string"} for key in ("code", "message", "recovery")},
}
_ERROR_RESPONSE: Final[JSON] = {
    "description": "The request was refused or failed",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def _operation(route: ApiRoute, schemas: JSON) -> JSON:
    media_type, schema = _TYPES[route.answer]
    operation: JSON = {
        "operationId": route.name,
        "summary": f"{route.summary}.{_NEEDS[route.rights]}{_role(route)}",
        "security": [] if route.audience == "anyone" else [{"cookie": []}],
        "parameters": _parameters(route, schemas),
        "responses": {
            "200": {"description": "The answer", "content": {media_type: {"schema": schema}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if route.body is not None:
        content = {"application/json": {"schema": _schema(route.body, schemas)}}
        operation["requestBody"] = {"content": content}
    return operation


def _role(route: ApiRoute) -> str:
    return "" if route.role == DEFAULT_ROLE else f" Needs the role {route.role}."


def _parameters(route: ApiRoute, schemas: JSON) -> list[JSON]:
    text: JSON = {"type": "string"}
    parameters: list[JSON] = [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in _PARAMETER.findall(route.path)
    ]
    for name, schema in _schema(route.query or NoQuery, schemas)["properties"].items():
        parameters.append({"name": name, "in": "query", "schema": schema})
    if route.method != "GET" and route.audience != "anyone":
        parameters.append(
            {"name": "X-CSRF-Token", "in": "header", "required": True, "schema": text}
        )
    return parameters


def _schema(model: type[ApiModel], schemas: JSON) -> dict[str, Any]:
    """Return the schema of a model. Those that it refers to are added to `schemas`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    schema.setdefault("properties", {})
    return schema


class ServerDocuments:
    """The documents of one process and its store."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @route("GET", "/openapi.json", "This document", audience="guest")
    async def openapi(self, call: ApiCall) -> Response:
        return json_response(openapi_document(version("statehold"), ROUTES))

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
        missing = self._gateway.probes.needed_logins
        counts = dict[str, int]()
        # The list is most useful while something fails.
        with suppress(StoreUnavailable):
            counts = await count_changes(self._gateway)
        services = [
            {
                **service,
                "changes": counts.get(service["service"], 0),
                "open": open_connections[service["service"]],
                "login": missing.get(service["service"]),
            }
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


async def count_changes(gateway: Gateway) -> dict[str, int]:
    """Return the number of changes that no person has accepted, of each service that has some.

    Raises:
        StoreUnavailable: they cannot be read.
    """
    changes = await gateway.store.access.count_changed_pins()
    return {
        name: changes[name, config_hash]
        for name, service in gateway.services.items()
        if isinstance(service, UpstreamService)
        and (name, config_hash := pins_hash(service.config)) in changes
    }


def _memory_with(pids: Set[int]) -> int | None:
    """Return the memory of this process and of programs that the keeper may have started; None where it is unknown."""
    own = procfs.resident_memory(os.getpid())
    return None if own is None else own + sum(procfs.tree_memory(pid) or 0 for pid in pids)
