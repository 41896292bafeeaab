"""The JSON schemas of tools: validation, repair, and changes to their arguments."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote

from ..sessions.json_codec import JSON


def _is_object_schema(schema: object) -> bool:
    """Whether a schema is valid and of type object, as the input schema of a tool must be."""
    return (
        isinstance(schema, dict)
        and cast("JSON", schema).get("type") == "object"
        and is_schema(cast("JSON", schema))
    )


def is_schema(schema: Any) -> bool:
    """Whether a schema is valid in the dialect that it names, or, if it names none, in one of the common dialects."""
    # Imported here because the import takes 5% of the start time and most calls do not need it.
    from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    fields = cast("JSON", schema)
    dialects = [Draft202012Validator, Draft7Validator, Draft4Validator]
    if isinstance(fields.get("$schema"), str):
        dialects = [validator_for(fields, default=Draft202012Validator)]
    return any(_is_valid_in(fields, dialect) for dialect in dialects)


def _is_valid_in(schema: object, dialect: Any) -> bool:
    from jsonschema.exceptions import SchemaError

    try:
        dialect.check_schema(schema)
    except SchemaError:
        return False
    return True


def repair_object_schema(schema: object) -> tuple[JSON, bool]:
    """Return an object schema that holds the valid parts of `schema`, and whether all of `schema` was valid."""
    if not isinstance(schema, dict):
        return {"type": "object"}, False
    fields = cast("JSON", schema)
    fields.setdefault("type", "object")
    if isinstance(fields.get("required"), list):
        fields["required"] = _texts(fields["required"])
    return (fields, True) if _is_object_schema(fields) else (_valid_parts(fields), False)


def _valid_parts(schema: JSON) -> JSON:
    """Return an object schema with the arguments of an invalid one; an argument with an invalid schema accepts anything."""
    members = schema.get("properties")
    properties: JSON = cast("JSON", members) if isinstance(members, dict) else {}
    dialect = {key: schema[key] for key in ("$schema",) if isinstance(schema.get(key), str)}
    anything: JSON = {}
    valid_properties: JSON = {
        name: part if is_schema({**dialect, "allOf": [part]}) else anything
        for name, part in properties.items()
    }
    valid: JSON = {**dialect, "type": "object"}
    if valid_properties:
        valid["properties"] = valid_properties
    if required := _texts(schema.get("required")):
        valid["required"] = required
    for key in ("$defs", "definitions"):
        if key in schema and is_schema({**dialect, key: schema[key]}):
            valid[key] = schema[key]
    return valid if is_schema(valid) else {"type": "object"}


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


__all__ = [
    "allow_argument",
    "argument_names",
    "is_schema",
    "repair_object_schema",
    "spell_out_booleans",
]
