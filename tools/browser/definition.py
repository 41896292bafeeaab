"""What a browser tool is: its name, what it takes, and the function that runs it."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from ...sessions.json_codec import JSON
from ...sessions.services import ToolSpec
from .call import Call
from .config import BrowserConfig, Capability
from .session.settle import LOAD_SECONDS

Kind = Literal["read", "act", "destroy"]
"""read: changes nothing. act: changes the page or what is behind it. destroy: also takes something away for good."""

Modal = Literal["dialog", "chooser", "pause"]

Patience = Literal["action", "navigation", "script", "wait"]
"""How long a tool may take: as the configuration says of such things, and a while for what they cause."""

WAIT_SECONDS = 60.0


class Arguments(BaseModel):
    """The arguments of a tool. What is not among them is refused, with the name that was probably meant.

    An empty text is taken for left out where it may be: some models fill in every argument.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    may_be_empty: ClassVar[Collection[str]] = ()
    """Which of those that may be left out are something else when they are empty."""

    @field_validator("*", mode="before")
    @classmethod
    def _left_out(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if value != "" or name in cls.may_be_empty:
            return value
        field = cls.model_fields[name]
        return None if field.default is None and _is_text(field.annotation) else value


class NoArguments(Arguments):
    """The arguments of a tool that takes none."""


def _is_text(kind: Any) -> bool:
    """Whether a type takes texts, perhaps beside None."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(map(_is_text, typing.get_args(kind)))
    if origin is Annotated:
        return _is_text(typing.get_args(kind)[0])
    return kind is str or origin is Literal


class _Number:
    """Calls a whole number a number in the schema, which keeps its bounds."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> JSON:
        return handler(core) | {"type": "number"}


Target = Annotated[
    str,
    Field(
        description="One element: a ref of the latest snapshot, such as e12, a selector, or a Playwright locator such as"
        " getByRole('button', { name: 'Send' })"
    ),
]
Element = Annotated[str | None, Field(description="What the element is, in words")]
Filename = Annotated[
    str | None,
    Field(description="Put the output into a file of the session, under this name"),
]
Whole = Annotated[int, _Number()]
"""A number without a fraction, which schemas that callers know call a number."""


@dataclass(frozen=True, slots=True)
class BrowserTool:
    """One tool. `answers` is what may wait for an answer of the caller's while it runs: others are refused then."""

    name: str
    capability: Capability
    title: str
    description: str
    arguments: type[Arguments]
    kind: Kind
    answers: Modal | None
    patience: Patience
    run: Callable[[Call, Any], Awaitable[None]]
    secret: frozenset[str] = frozenset()
    """Names of arguments, also nested ones, that hold what is typed, which may be secret."""

    def seconds(self, config: BrowserConfig) -> float:
        """Return how long a call of it may take before its page is looked after."""
        own = {
            "action": config.action_seconds,
            "navigation": config.navigation_seconds,
            "script": config.script_seconds,
            "wait": WAIT_SECONDS + config.action_seconds,
        }
        return own[self.patience] + config.settle_seconds + LOAD_SECONDS + 2.0

    def spec(self) -> ToolSpec:
        schema = self.arguments.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
        annotations: JSON = {
            "title": self.title,
            "readOnlyHint": self.kind == "read",
            "destructiveHint": self.kind != "read",
            "openWorldHint": True,
        }
        definition: JSON = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "annotations": annotations,
        }
        return ToolSpec(self.name, definition, self.secret)


class _PlainSchema(GenerateJsonSchema):
    """Schemas as plain as can be, for models pay by the word and some clients know little of JSON Schema.

    Without titles and references; what may be left out is of one type, without null, though null is taken for left out.
    """

    def generate(self, schema: Any, mode: Any = "validation") -> JSON:
        found = super().generate(schema, mode)
        models = found.pop("$defs", {})
        for model in (found, *models.values()):
            for word in ("title", "description"):
                model.pop(word, None)
            for name, part in model.get("properties", {}).items():
                model["properties"][name] = _plain(part)
        return cast("JSON", _inlined(found, models))


def _plain(part: JSON) -> JSON:
    part.pop("title", None)
    kinds: list[JSON] = part.get("anyOf", [])
    if "default" in part and part["default"] is None and {"type": "null"} in kinds:
        del part["default"], part["anyOf"]
        return kinds[0] | part
    return part


def _inlined(node: Any, models: JSON) -> Any:
    if isinstance(node, dict):
        known = cast("JSON", node)
        if "$ref" in known:
            return _inlined(models[known["$ref"].rpartition("/")[2]], models)
        return {key: _inlined(value, models) for key, value in known.items()}
    if isinstance(node, list):
        return [_inlined(value, models) for value in cast("list[Any]", node)]
    return node


def tool(
    name: str,
    *,
    title: str,
    cap: Capability = "core",
    kind: Kind = "act",
    answers: Modal | None = None,
    patience: Patience = "action",
    description: str | None = None,
    secret: Collection[str] = (),
) -> Callable[[Callable[[Call, Any], Awaitable[None]]], BrowserTool]:
    """Make a tool of a function. Its second parameter's type is the arguments, its docstring the usual description."""

    def make(run: Callable[[Call, Any], Awaitable[None]]) -> BrowserTool:
        hints = typing.get_type_hints(run)
        parameters = list(inspect.signature(run).parameters)
        text = " ".join((description or run.__doc__ or "").split())
        return BrowserTool(
            name,
            cap,
            title,
            text,
            hints[parameters[1]],
            kind,
            answers,
            patience,
            run,
            frozenset(secret),
        )

    return make


__all__ = [
    "Arguments",
    "BrowserTool",
    "Element",
    "Filename",
    "Kind",
    "NoArguments",
    "Patience",
    "Target",
    "Whole",
    "tool",
]
