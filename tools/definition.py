"""The base classes of the tools that Statehold implements itself, and of their arguments.

Statehold's own tools (own/) and the browser tools (browser/tools/) are instances of subclasses of Tool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticKnownError, core_schema

from ..sessions.errors import InvalidArgument
from ..sessions.json_codec import JSON

SCHEMAS: Final = Path(__file__).with_name("own") / "schemas.json"
"""Written by tests/tools/own/test_schemas.py."""

Naming = Literal["explicit", "pinned", "auto", "command"]
"""How a caller names the session: `explicit`, by a required argument; `pinned`, by the URL or command line; `command`,
the same for a command of a shell; `auto`, by an optional argument."""


class Arguments(BaseModel):
    """The arguments of a tool. Unknown arguments are refused; numbers must be finite, and true and false are no numbers."""

    model_config = ConfigDict(
        extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_number(cls, value: object, info: ValidationInfo) -> object:
        # bool is an int in Python but not in JSON. Strict mode would also refuse 3.0 for 3.
        if isinstance(value, bool):
            types = types_of(cls.model_fields[info.field_name or ""].annotation)
            if bool not in types and (int in types or float in types):
                raise PydanticKnownError("int_type" if int in types else "float_type")
        return value


class NoArguments(Arguments):
    """No arguments."""


@dataclass(frozen=True, slots=True)
class BuiltinTool:
    """One tool, as callers see it. A subclass adds the function that runs it."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    _: KW_ONLY
    toolset: str = "core"
    """The group of tools that the configuration turns on or off together."""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    """Whether it reaches systems outside of Statehold; the `openWorldHint`."""

    def definition(self) -> JSON:
        """Return the tool as MCP JSON.

        The title stands in the annotations only: there, clients of every revision find it. Hints without a meaning for the
        tool, or of the protocol's own default, are left out to save tokens.
        """
        annotations: JSON = {"title": self.title, "readOnlyHint": self.read_only}
        if not self.read_only:
            annotations["destructiveHint"] = self.destructive
        if self.idempotent:
            annotations["idempotentHint"] = True
        if not self.open_world:
            annotations["openWorldHint"] = False
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema_of(self.arguments),
            "annotations": annotations,
        }

    def parse(self, arguments: Mapping[str, Any], *, unlisted: Collection[str] = ()) -> Any:
        """Return the arguments as the tool's model. An error does not offer those that callers do not see, `unlisted`.

        Raises:
            InvalidArgument: An argument is wrong. The error names the unknown argument if there is one, else the first.
        """
        try:
            return self.arguments.model_validate(dict(arguments), by_alias=True, by_name=False)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        # A misspelled argument gives two errors, missing and unknown; report the unknown name.
        first = next(
            (detail for detail in errors if detail["type"] == "extra_forbidden"), errors[0]
        )
        location = ".".join(str(part) for part in first["loc"]) or "arguments"
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            names = ", ".join(
                field.alias or name
                for name, field in self.arguments.model_fields.items()
                if name not in unlisted
            )
            text = f"{self.name} has no argument {location!r}; it takes: {names or 'none'}."
            raise InvalidArgument(text)
        raise InvalidArgument(self.describe_error(first, arguments))

    def describe_error(self, error: ErrorDetails, arguments: Mapping[str, Any]) -> str:
        """Return the message about an argument that is wrong or missing."""
        location = ".".join(str(part) for part in error["loc"]) or "arguments"
        return f"{self.name}: {location}: {error['msg'][0].lower()}{error['msg'][1:]}."


def types_of(annotation: object) -> set[object]:
    """Return the types that an annotation allows: the members of a union, without `Annotated`."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return types_of(parts[0])
    if origin in (Union, UnionType):
        return {member for part in parts for member in types_of(part)}
    return {annotation}


class _SchemaBuilder(GenerateJsonSchema):
    """Writes an optional argument as one that may be left out, not as a union with null or with the default false.

    An argument with a default factory keeps the union: for it, null has its own meaning.
    """

    _keep_null = False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        if self.mode == "serialization" or self._keep_null:
            return super().nullable_schema(schema)
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        self._keep_null = "default_factory" in schema
        result = super().default_schema(schema)
        self._keep_null = False
        if any(result.get("default", 0) is absent for absent in (None, False)):
            del result["default"]
        return result


_OMITTED = frozenset({"propertyNames", "minLength", "maxLength", "minItems", "maxItems"})
"""Keywords that schema_of() leaves out."""


def schema_of(model: type[Any], mode: Any = "validation") -> JSON:
    """Return the JSON Schema (2020-12) of a model or a dataclass, without titles, lengths, `propertyNames` and references.

    Lengths are checked all the same, and so are unknown arguments. In the schema they would cost tokens, some strict modes
    refuse lengths, and the converter of google-genai stops at `additionalProperties: false`.

    The model must not be recursive, because references are replaced by their targets.

    Those of our own tools come from a file: building them would take a twentieth of the start of a process.
    """
    stored = _stored_schemas().get(f"{model.__module__}.{model.__qualname__} {mode}")
    return build_schema(model, mode) if stored is None else deepcopy(stored)


@cache
def _stored_schemas() -> Mapping[str, JSON]:
    return orjson.loads(SCHEMAS.read_bytes())


def build_schema(model: type[Any], mode: Any = "validation") -> JSON:
    """Return the schema of a model as schema_of() does, but never from the file."""
    schema = TypeAdapter(model).json_schema(schema_generator=_SchemaBuilder, mode=mode)
    _remove_titles(schema)
    schema.pop("description", None)
    models: JSON = schema.pop("$defs", {})
    return cast("JSON", _inline(schema, models))


def _inline(node: Any, models: JSON) -> Any:
    """Return a schema with each reference replaced by the model that it names."""
    if isinstance(node, list):
        return [_inline(item, models) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema = cast("JSON", node)
    if isinstance(schema.get("$ref"), str):
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline({**models[schema["$ref"].rpartition("/")[2]], **siblings}, models)
    plain = {key: _inline(item, models) for key, item in schema.items() if key not in _OMITTED}
    if plain.get("additionalProperties", True) in (True, False, {}):
        plain.pop("additionalProperties", None)
    return plain


def _remove_titles(schema: JSON) -> None:
    for value in schema.get("properties", {}).values():
        if isinstance(value, dict):
            fields = cast("JSON", value)
            fields.pop("title", None)
            _remove_titles(fields)
    for value in schema.get("$defs", {}).values():
        value.pop("title", None)
        _remove_titles(value)
    schema.pop("title", None)
