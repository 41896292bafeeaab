"""Statehold's own tools: their definition, and the JSON of their arguments and results."""

from __future__ import annotations

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticKnownError, core_schema

from ..sessions.calls.claims import Claim
from ..sessions.calls.deliveries import Delivery
from ..sessions.errors import InvalidArgument, SessionNotFound
from ..sessions.json_codec import JSON
from ..sessions.records import Principal

Naming = Literal["explicit", "pinned", "auto"]
"""How a caller names the session: by a required argument, by the URL or command line, or by an optional argument."""


class Arguments(BaseModel):
    """Base of the arguments of an own tool: unknown ones are refused, numbers are finite and not true or false."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, str_max_length=100_000)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        # Python takes true and false for numbers, JSON does not. Strict mode would refuse 3.0 for 3 as well.
        if isinstance(value, bool):
            kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
            if bool not in kinds and (int in kinds or float in kinds):
                raise PydanticKnownError("int_type" if int in kinds else "float_type")
        return value


def _kinds(annotation: object) -> set[object]:
    """Return the types a value may be of, out of unions and annotations."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kinds(parts[0])
    if origin in (Union, UnionType):
        return {kind for part in parts for kind in _kinds(part)}
    return {annotation}


@dataclass(frozen=True, slots=True)
class Context:
    """The caller of an own tool, and the session when that is pinned."""

    principal: Principal
    namespace: str = ""
    pinned: str | None = None
    claim: Claim | None = None
    """The operation id of a call that makes a session; the session keeps the receipt."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an own tool: its structured content, and the session it speaks of."""

    content: JSON
    session: JSON | None = None
    notice: str | None = None
    """The notice that is shown before the result, as with any call: see Answer."""
    delivery: Delivery | None = None
    """The same, for Router.return_notice()."""


Handler = Callable[[Context, Any], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class OwnTool:
    """One tool of ours: its definition as MCP JSON, and the function that runs it."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    output: type[BaseModel]
    handler: Handler
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    toolset: str = "core"
    pinned: bool = True
    """Whether it makes sense where the session is pinned by the URL or the command line."""
    frees_name: bool = False
    """Whether another session may get the name of its session afterwards."""

    @property
    def of_session(self) -> bool:
        """Whether it takes a session."""
        return "session_id" in self.arguments.model_fields

    def definition(self, *, naming: Naming = "explicit", header: bool = False) -> JSON:
        schema = schema_of(self.arguments)
        properties: JSON = schema.setdefault("properties", {})
        if self.of_session:
            if naming != "explicit":
                schema["required"] = [n for n in schema.get("required", []) if n != "session_id"]
            if naming == "pinned":
                del properties["session_id"]
            elif header:
                properties["session_id"]["x-mcp-header"] = "Session-Id"
        if not schema.get("required"):
            schema.pop("required", None)
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "outputSchema": schema_of(self.output, "serialization"),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent or self.read_only,
                "openWorldHint": False,
            },
        }

    def shown(self, content: JSON) -> JSON:
        """Return a result as a model reads it, without the keys whose null means that there is no value."""
        return _without_nulls(self.output, content)

    async def run(self, context: Context, arguments: JSON) -> Outcome:
        """Check the arguments and run it; see checked()."""
        return await self.handler(context, self.checked(context, arguments))

    def checked(self, context: Context, arguments: JSON) -> Arguments:
        """Return the arguments as the tool's model.

        Raises:
            SessionNotFound: it needs a session and none is named.
            InvalidArgument: an argument is wrong; the error names the first.
        """
        if self.of_session:
            if context.pinned is not None:
                arguments = {**arguments, "session_id": context.pinned}
            elif not arguments.get("session_id"):
                raise missing_session("session_id")
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise InvalidArgument(_first(error)) from None


def _without_nulls(model: type[BaseModel], content: Mapping[str, Any]) -> JSON:
    """Drop null where the model allows it for an absent value; values that a caller stored stay as they are."""
    found: JSON = {}
    for key, value in content.items():
        field = model.model_fields.get(key)
        kinds = _kinds(field.annotation) if field is not None else set[object]()
        if value is None and NoneType in kinds:
            continue
        inner = next((kind for kind in map(_model_in, kinds) if kind is not None), None)
        if inner is not None and isinstance(value, list):
            found[key] = [_without_nulls(inner, one) for one in cast("list[JSON]", value)]
        elif inner is not None and isinstance(value, dict):
            found[key] = _without_nulls(inner, cast("JSON", value))
        else:
            found[key] = value
    return found


def _model_in(kind: object) -> type[BaseModel] | None:
    """Return the model that a type is, or is a list of."""
    found = get_args(kind)[0] if get_origin(kind) is list else kind
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def missing_session(argument: str) -> SessionNotFound:
    """Return the error of a call that names no session."""
    return SessionNotFound(
        f"{argument} is missing: call session_create and pass the session_id it returns."
    )


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"]) or "arguments"
    return f"{where}: {found['msg'].lower()}."


class _Plain(GenerateJsonSchema):
    """JSON Schema without unions with null: an optional argument is one that may be left out."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        if self.mode == "serialization":
            return super().nullable_schema(schema)
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("default", 0) is None:
            del found["default"]
        return found


def schema_of(model: type[BaseModel], mode: Any = "validation") -> JSON:
    """Return the JSON Schema of a model: 2020-12, without titles, `propertyNames` and references.

    No model of ours contains itself.
    """
    schema = model.model_json_schema(schema_generator=_Plain, mode=mode)
    _untitled(schema)
    schema.pop("description", None)
    models: JSON = schema.pop("$defs", {})
    return cast("JSON", _inlined(schema, models))


def _inlined(node: Any, models: JSON) -> Any:
    """Return a schema with each model in the place of its reference."""
    if isinstance(node, list):
        return [_inlined(one, models) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema = cast("JSON", node)
    if isinstance(schema.get("$ref"), str):
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined({**models[schema["$ref"].rpartition("/")[2]], **own}, models)
    return {key: _inlined(one, models) for key, one in schema.items() if key != "propertyNames"}


def _untitled(schema: JSON) -> None:
    for value in schema.get("properties", {}).values():
        if isinstance(value, dict):
            found = cast("JSON", value)
            found.pop("title", None)
            _untitled(found)
    for value in schema.get("$defs", {}).values():
        value.pop("title", None)
        _untitled(value)
    schema.pop("title", None)


def words(seconds: float) -> str:
    """Return a duration in words for a description: `15 minutes`, `7 days`, `never` for 0."""
    if not seconds:
        return "never"
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and math.isclose(seconds % size, 0):
            count = round(seconds / size)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{seconds:g} second{'s' if seconds != 1 else ''}"


def moment(text: str | None, what: str) -> float | None:
    """Read a time in ISO 8601 as seconds since 1970; one without a zone is in UTC.

    Raises:
        InvalidArgument: the text is no time.
    """
    if text is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
        return found.timestamp()
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{what}: should be a time in ISO 8601, such as 2026-07-28T12:00:00Z."
        ) from None


__all__ = [
    "Arguments",
    "Context",
    "Handler",
    "Naming",
    "Outcome",
    "OwnTool",
    "missing_session",
    "moment",
    "schema_of",
    "words",
]
