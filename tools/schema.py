"""The JSON schemas of tools: validation, repair of broken ones, and the arguments they name."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote

from ..sessions.json_codec import JSON


def _is_object_schema(schema: object) -> bool:
    """Tell whether a schema is valid and its root an object, as the input schema of a tool has to be."""
    return (
        isinstance(schema, dict)
        and cast("JSON", schema).get("type") == "object"
        and is_schema(cast("JSON", schema))
    )


def is_schema(schema: Any) -> bool:
    """Tell whether a schema is valid in the dialect it names, or in one of those that servers write without naming it."""
    # Imported here: it would take a twentieth of the start of the process, which answers without it.
    from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    found = cast("JSON", schema)
    dialects = [Draft202012Validator, Draft7Validator, Draft4Validator]
    if isinstance(found.get("$schema"), str):
        dialects = [validator_for(found, default=Draft202012Validator)]
    return any(_follows(found, dialect) for dialect in dialects)


def _follows(schema: object, dialect: Any) -> bool:
    from jsonschema.exceptions import SchemaError

    try:
        dialect.check_schema(schema)
    except SchemaError:
        return False
    return True


def sound_object_schema(schema: object) -> tuple[JSON, bool]:
    """Return an object schema with the valid parts of this one, and whether all of it was valid."""
    if not isinstance(schema, dict):
        return {"type": "object"}, False
    found = cast("JSON", schema)
    found.setdefault("type", "object")
    if isinstance(found.get("required"), list):
        found["required"] = _texts(found["required"])
    return (found, True) if _is_object_schema(found) else (_sound_parts(found), False)


def _sound_parts(schema: JSON) -> JSON:
    """Return the arguments of an invalid schema: those with a valid schema of their own, the others as anything."""
    own = schema.get("properties")
    properties: JSON = cast("JSON", own) if isinstance(own, dict) else {}
    dialect = {key: schema[key] for key in ("$schema",) if isinstance(schema.get(key), str)}
    anything: JSON = {}
    kept: JSON = {
        name: part if is_schema({**dialect, "allOf": [part]}) else anything
        for name, part in properties.items()
    }
    found: JSON = {**dialect, "type": "object"}
    if kept:
        found["properties"] = kept
    if required := _texts(schema.get("required")):
        found["required"] = required
    for key in ("$defs", "definitions"):
        if key in schema and is_schema({**dialect, key: schema[key]}):
            found[key] = schema[key]
    return found if is_schema(found) else {"type": "object"}


def argument_names(root: JSON) -> set[str]:
    """Return the names of all arguments of a schema, in its root and in the schemas that the root refers to."""
    names: set[str] = set()
    for schema in _in_place(root):
        properties, required = schema.get("properties"), schema.get("required")
        names.update(cast("JSON", properties) if isinstance(properties, dict) else ())
        names.update(_texts(required))
    return names


def admit_argument(root: JSON, name: str) -> None:
    """Change the schemas that apply to the arguments of a tool so that they accept one more, whose name is new to them.

    `patternProperties` and `not` are left as they are.
    """
    for schema in _in_place(root):
        closed = any(
            schema.get(key, True) is not True
            for key in ("additionalProperties", "unevaluatedProperties")
        )
        if closed and schema is not root:
            schema["properties"] = {**(schema.get("properties") or {}), name: {}}
        most = schema.get("maxProperties")
        if isinstance(most, int | float):
            schema["maxProperties"] = most + 1
        names = schema.get("propertyNames", True)
        if names is not True:
            schema["propertyNames"] = {"anyOf": [{"enum": [name]}, *([names] if names else ())]}


def spell_out_booleans(schema: JSON) -> None:
    """Replace the boolean schemas of arguments, which many clients do not read: true by `{}`, false by its negation."""
    for part in _in_place(schema):
        properties = part.get("properties")
        if isinstance(properties, dict):
            known = cast("JSON", properties)
            for name, found in known.items():
                if isinstance(found, bool):
                    known[name] = {} if found else {"not": {}}


def _in_place(root: JSON) -> list[JSON]:
    """Return the root and the schemas that apply to the same value: combined, conditional and referred ones, each once."""
    found: list[JSON] = []
    left: list[object] = [root]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if not isinstance(one, dict) or id(one) in seen:  # pyright: ignore[reportUnknownArgumentType]
            continue
        schema = cast("JSON", one)
        seen.add(id(schema))
        found.append(schema)
        left += [schema.get(key) for key in ("if", "then", "else")]
        for key in ("allOf", "anyOf", "oneOf"):
            parts = schema.get(key)
            left += cast("list[object]", parts) if isinstance(parts, list) else ()
        dependent = schema.get("dependentSchemas")
        left += cast("JSON", dependent).values() if isinstance(dependent, dict) else ()
        left.append(_referred(root, schema.get("$ref")))
    return found


def _referred(root: JSON, reference: object) -> object:
    """Return the target of a reference within a schema, None when it is not clear."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        if not isinstance(found, dict):
            return None
        found = cast("JSON", found).get(part.replace("~1", "/").replace("~0", "~"))
    return found


def _texts(values: object) -> list[str]:
    """Return the strings of a list, each once."""
    items = cast("list[object]", values) if isinstance(values, list) else []
    return list(dict.fromkeys(item for item in items if isinstance(item, str)))


__all__ = [
    "admit_argument",
    "argument_names",
    "is_schema",
    "sound_object_schema",
    "spell_out_booleans",
]
