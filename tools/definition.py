"""Tools that callers can invoke: the base of their definitions, of their arguments and of the schemas of both.

Statehold's own tools (own/) and those of the browser (browser/tools/) are defined by subclasses of Tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticKnownError, core_schema

from ..sessions.errors import InvalidArgument
from ..sessions.json_codec import JSON

Naming = Literal["explicit", "pinned", "auto"]
"""How a caller names the session: by a required argument, by the URL or command line, or by an optional argument."""


class Arguments(BaseModel):
    """The arguments of a tool: unknown ones are refused, numbers are finite and not true or false."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_number(cls, value: object, info: ValidationInfo) -> object:
        # Python takes true and false for numbers, JSON does not. Strict mode would refuse 3.0 for 3 as well.
        if isinstance(value, bool):
            types = types_of(cls.model_fields[info.field_name or ""].annotation)
            if bool not in types and (int in types or float in types):
                raise PydanticKnownError("int_type" if int in types else "float_type")
        return value


class NoArguments(Arguments):
    """The arguments of a tool that takes none."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, as callers see it. A subclass adds the function that runs it."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    _: KW_ONLY
    toolset: str = "core"
    """The group in which a configuration turns it on."""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    """Whether it reaches systems outside of Statehold."""

    def definition(self) -> JSON:
        """Return the tool as MCP JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema_of(self.arguments),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent or self.read_only,
                "openWorldHint": self.open_world,
            },
        }

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """Return the arguments as the tool's model.

        Raises:
            InvalidArgument: An argument is wrong; the error names the first, an unknown one before all others.
        """
        try:
            return self.arguments.model_validate(dict(arguments), by_alias=True, by_name=False)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
        # A misspelled argument gives two errors, missing and unknown; report the unknown name.
        first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
        place = ".".join(str(part) for part in first["loc"]) or "arguments"
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            known = ", ".join(f.alias or name for name, f in self.arguments.model_fields.items())
            text = f"{self.name} has no argument {place!r}; it takes: {known or 'none'}."
            raise InvalidArgument(text)
        raise InvalidArgument(f"{self.name}: {place}: {first['msg'][0].lower()}{first['msg'][1:]}.")


def types_of(annotation: object) -> set[object]:
    """Return the types that a value may have: the members of a union, without annotations."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return types_of(parts[0])
    if origin in (Union, UnionType):
        return {one for part in parts for one in types_of(part)}
    return {annotation}


class _SchemaBuilder(GenerateJsonSchema):
    """JSON Schema without unions with null: an optional argument is one that may be left out.

    An argument with a default factory keeps its union: there null has a meaning of its own.
    """

    _keep_null = False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        if self.mode == "serialization" or self._keep_null:
            return super().nullable_schema(schema)
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        self._keep_null = "default_factory" in schema
        found = super().default_schema(schema)
        self._keep_null = False
        if found.get("default", 0) is None:
            del found["default"]
        return found


def schema_of(model: type[BaseModel], mode: Any = "validation") -> JSON:
    """Return the JSON Schema of a model: 2020-12, without titles, `propertyNames` and references.

    No model of ours contains itself.
    """
    schema = model.model_json_schema(schema_generator=_SchemaBuilder, mode=mode)
    _remove_titles(schema)
    schema.pop("description", None)
    models: JSON = schema.pop("$defs", {})
    return cast("JSON", _inline(schema, models))


def _inline(node: Any, models: JSON) -> Any:
    """Return a schema with each model in the place of its reference."""
    if isinstance(node, list):
        return [_inline(one, models) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema = cast("JSON", node)
    if isinstance(schema.get("$ref"), str):
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline({**models[schema["$ref"].rpartition("/")[2]], **own}, models)
    return {key: _inline(one, models) for key, one in schema.items() if key != "propertyNames"}


def _remove_titles(schema: JSON) -> None:
    for value in schema.get("properties", {}).values():
        if isinstance(value, dict):
            found = cast("JSON", value)
            found.pop("title", None)
            _remove_titles(found)
    for value in schema.get("$defs", {}).values():
        value.pop("title", None)
        _remove_titles(value)
    schema.pop("title", None)


__all__ = ["Arguments", "Naming", "NoArguments", "Tool", "schema_of", "types_of"]
