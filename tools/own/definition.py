"""Statehold's own tools: their definition, the context of a call, and its outcome."""

from __future__ import annotations

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel

from ...sessions.calls.deliveries import Delivery
from ...sessions.calls.receipts import Operation
from ...sessions.errors import InvalidArgument, SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.records import Principal
from ..definition import Naming, Tool, schema_of, types_of


@dataclass(frozen=True, slots=True)
class Context:
    """The caller of an own tool, and the session when that is pinned."""

    principal: Principal
    namespace: str = ""
    pinned: str | None = None
    operation: Operation | None = None
    """The operation of a call that creates a session; the session keeps its receipt."""
    cause: str = "requested"
    """The cause that the journal gives for a pause or a close by the caller."""


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
class OwnTool(Tool):
    """One tool of ours, with the function that runs it."""

    output: type[BaseModel]
    handler: Handler
    pinned: bool = field(default=True, kw_only=True)
    """Whether it makes sense where the session is pinned by the URL or the command line."""
    frees_name: bool = field(default=False, kw_only=True)
    """Whether another session may get the name of its session afterwards."""

    @property
    def of_session(self) -> bool:
        """Whether it takes a session."""
        return "session_id" in self.arguments.model_fields

    def definition(self, *, naming: Naming = "explicit", header: bool = False) -> JSON:
        """Return the tool as MCP JSON, its session as `naming` says.

        `header`: mark session_id as the argument that a client may send as an HTTP header.
        """
        found = Tool.definition(self)
        found["outputSchema"] = schema_of(self.output, "serialization")
        schema: JSON = found["inputSchema"]
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
        return found

    def without_nulls(self, content: JSON) -> JSON:
        """Return a result as a model reads it, without the keys whose null means that there is no value."""
        return _without_nulls(self.output, content)

    async def run(self, context: Context, arguments: JSON) -> Outcome:
        """Check the arguments and run it; see parse_call()."""
        return await self.handler(context, self.parse_call(context, arguments))

    def parse_call(self, context: Context, arguments: JSON) -> Any:
        """Return the arguments as the tool's model, the session being the pinned one if there is one.

        Raises:
            SessionNotFound: It needs a session and none is named.
            InvalidArgument: An argument is wrong; see parse().
        """
        if self.of_session:
            if context.pinned is not None:
                arguments = {**arguments, "session_id": context.pinned}
            elif not arguments.get("session_id"):
                raise missing_session("session_id")
        return self.parse(arguments)


def _without_nulls(model: type[BaseModel], content: Mapping[str, Any]) -> JSON:
    """Drop null where the model allows it for an absent value; values that a caller stored stay as they are."""
    found: JSON = {}
    for key, value in content.items():
        model_field = model.model_fields.get(key)
        kinds = types_of(model_field.annotation) if model_field is not None else set[object]()
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
    "Context",
    "Handler",
    "Outcome",
    "OwnTool",
    "missing_session",
    "moment",
    "words",
]
