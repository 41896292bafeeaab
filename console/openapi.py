"""The OpenAPI 3.1 document of the API, written from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from ..access.config.auth import DEFAULT_ROLE
from ..sessions.json_codec import JSON
from .logins import Rights
from .requests import ApiModel, NoQuery
from .routes import ApiRoute

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
    for route in routes:
        operation = _operation(route, schemas)
        paths.setdefault(route.full_path, {})[route.method.lower()] = operation
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
