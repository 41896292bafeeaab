"""The JSON schemas of tools: validation, repair, and changes to their arguments."""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import unquote

from ..sessions.json_codec import JSON

MAX_DEPTH: Final = 200
"""The levels of objects and arrays that a schema may have. Encoders of JSON stop at about 255 for the whole list."""

_COMMON_DIALECTS: Final = (
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-04/schema",
)
_DIALECTS: Final = frozenset(
    {
        *_COMMON_DIALECTS,
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-06/schema",
    }
)
_SCHEMA_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value is an object of schemas by name."""


def is_schema(schema: Any) -> bool:
    """Whether a schema is valid in the dialect that it names, or, if it names none of the known, in a common dialect.

    A pattern may be any text: JSON Schema recommends the expressions of ECMAScript, which Python cannot read. The schema
    must not be deeper than copy_json() allows, because the engine has no bound.
    """
    # Imported here because most processes need it late or never.
    from jsonschema_rs import meta

    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    fields = cast("JSON", schema)
    if not isinstance(fields.get("$schema", ""), str):
        return False
    # Without the name of an unknown dialect, because the engine would request it from its address.
    return any(meta.is_valid({**fields, "$schema": dialect}) for dialect in _dialects_of(fields))


def _dialects_of(schema: JSON) -> tuple[str, ...]:
    dialect = str(schema.get("$schema")).removesuffix("#")
    return (dialect,) if dialect in _DIALECTS else _COMMON_DIALECTS


def copy_json(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return a copy of a JSON value.

    Raises:
        RecursionError: It has more than `levels` levels of objects and arrays.
    """
    if isinstance(value, dict):
        if not levels:
            raise RecursionError
        fields = cast("JSON", value)
        return {name: copy_json(part, levels - 1) for name, part in fields.items()}
    if isinstance(value, list):
        if not levels:
            raise RecursionError
        return [copy_json(part, levels - 1) for part in cast("list[object]", value)]
    return value


def repair_object_schema(schema: object) -> tuple[JSON, bool]:
    """Return an object schema without the keywords of `schema` that are invalid, and whether it had none."""
    if not isinstance(schema, dict):
        return {"type": "object"}, False
    fields = cast("JSON", schema)
    was_object = fields.setdefault("type", "object") == "object"
    if isinstance(fields.get("required"), list):
        fields["required"] = _texts(fields["required"])
    if was_object and is_schema(fields):
        return fields, True
    repaired = repair_schema({**fields, "type": "object"})
    return ({"type": "object"} if repaired is None else repaired), False


def repair_schema(schema: object) -> JSON | None:
    """Return a schema without its invalid keywords; None if nothing of it is valid.

    A part that is no schema at all becomes `{}`, so that the argument keeps its name and accepts anything.
    """
    if not isinstance(schema, dict):
        return None
    fields = cast("JSON", schema)
    dialects = _dialects_of(fields)
    # Keywords that are valid in different dialects may be invalid together.
    for allowed in (dialects, *((dialect,) for dialect in dialects)):
        repaired = _repair(fields, allowed)
        if repaired and is_schema(repaired):
            return repaired
    return None


def _repair(schema: object, dialects: tuple[str, ...]) -> JSON:
    repaired: JSON = {}
    for keyword, value in cast("JSON", schema).items() if isinstance(schema, dict) else ():
        if _is_valid_keyword(keyword, value, dialects):
            repaired[keyword] = value
            continue
        part = _repair_value(keyword, value, dialects)
        if _is_valid_keyword(keyword, part, dialects):
            repaired[keyword] = part
    return repaired


def _is_valid_keyword(keyword: str, value: object, dialects: tuple[str, ...]) -> bool:
    from jsonschema_rs import meta

    # In draft 4 the exclusive bounds need the others beside them.
    bounds = {"minimum": 0, "maximum": 0}
    if keyword == "$schema":
        return isinstance(value, str)
    return any(
        meta.is_valid({"$schema": dialect, **bounds, keyword: value}) for dialect in dialects
    )


def _repair_value(keyword: str, value: object, dialects: tuple[str, ...]) -> object:
    """Return the valid parts of the value of an invalid keyword."""
    if isinstance(value, list):
        if keyword == "required":
            return _texts(cast("list[object]", value))
        return [
            part if isinstance(part, bool) else _repair(part, dialects)
            for part in cast("list[object]", value)
        ]
    if not isinstance(value, dict):
        return value
    fields = cast("JSON", value)
    if keyword not in _SCHEMA_MAPS:
        return _repair(fields, dialects)
    return {
        name: part
        if _is_valid_keyword(keyword, {name: part}, dialects)
        else _repair(part, dialects)
        for name, part in fields.items()
    }


def argument_names(root: JSON) -> set[str]:
    """Return the names of all arguments that a schema declares, also in its combined and referenced schemas."""
    names: set[str] = set()
    for schema in _applied_schemas(root):
        properties, required = schema.get("properties"), schema.get("required")
        names.update(cast("JSON", properties) if isinstance(properties, dict) else ())
        names.update(_texts(required))
    return names


def allow_argument(root: JSON, name: str) -> None:
    """Change a schema, in place, so that it accepts one more argument with a name that it does not use yet.

    `patternProperties` and `not` are not changed.
    """
    for schema in _applied_schemas(root):
        is_closed = any(
            schema.get(key, True) is not True
            for key in ("additionalProperties", "unevaluatedProperties")
        )
        if is_closed and schema is not root:
            schema["properties"] = {**(schema.get("properties") or {}), name: {}}
        limit = schema.get("maxProperties")
        if isinstance(limit, int | float):
            schema["maxProperties"] = limit + 1
        names = schema.get("propertyNames", True)
        if names is not True:
            schema["propertyNames"] = {"anyOf": [{"enum": [name]}, *([names] if names else ())]}


def spell_out_booleans(schema: JSON) -> None:
    """Replace boolean schemas of arguments, which many clients reject: true by `{}`, false by `{"not": {}}`."""
    for part in _applied_schemas(schema):
        properties = part.get("properties")
        if isinstance(properties, dict):
            fields = cast("JSON", properties)
            for name, value in fields.items():
                if isinstance(value, bool):
                    fields[name] = {} if value else {"not": {}}


def _applied_schemas(root: JSON) -> list[JSON]:
    """Return the root and all schemas that apply to the same value: combined, conditional and referenced ones, once each."""
    schemas: list[JSON] = []
    pending: list[object] = [root]
    visited: set[int] = set()
    while pending:
        candidate = pending.pop()
        if not isinstance(candidate, dict) or id(candidate) in visited:  # pyright: ignore[reportUnknownArgumentType]
            continue
        schema = cast("JSON", candidate)
        visited.add(id(schema))
        schemas.append(schema)
        pending += [schema.get(key) for key in ("if", "then", "else")]
        for key in ("allOf", "anyOf", "oneOf"):
            parts = schema.get(key)
            pending += cast("list[object]", parts) if isinstance(parts, list) else ()
        dependent = schema.get("dependentSchemas")
        pending += cast("JSON", dependent).values() if isinstance(dependent, dict) else ()
        pending.append(_resolve_reference(root, schema.get("$ref")))
    return schemas


def _resolve_reference(root: JSON, reference: object) -> object:
    """Return the target of a `#/...` reference within a schema, None if it has none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        if not isinstance(target, dict):
            return None
        target = cast("JSON", target).get(part.replace("~1", "/").replace("~0", "~"))
    return target


def _texts(values: object) -> list[str]:
    """Return the strings of a list, each once."""
    items = cast("list[object]", values) if isinstance(values, list) else []
    return list(dict.fromkeys(item for item in items if isinstance(item, str)))
