"""The definition of a browser tool: its name, its arguments, and the function that runs it."""

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
"""read: changes nothing. act: changes the page or its site. destroy: also removes data for good."""

Modal = Literal["dialog", "chooser", "pause"]

Patience = Literal["action", "navigation", "script", "wait"]
"""The time limit of a tool: the configured limit of this kind, plus some seconds for the effects."""

WAIT_SECONDS = 60.0


class Arguments(BaseModel):
    """The arguments of a tool. An unknown argument is refused, and the error lists the known ones.

    An empty text counts as absent where the argument is optional: some models fill in every argument.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    may_be_empty: ClassVar[Collection[str]] = ()
    """The names of optional arguments for which an empty text has a meaning of its own."""

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
    """Return whether a type takes texts, with or without None."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(map(_is_text, typing.get_args(kind)))
    if origin is Annotated:
        return _is_text(typing.get_args(kind)[0])
    return kind is str or origin is Literal


class _Number:
    """Gives an integer the type `number` in the schema and keeps its bounds."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> JSON:
        return handler(core) | {"type": "number"}


Target = Annotated[
    str,
    Field(
        description="One element: a ref of the latest snapshot, such as e12, a selector, or a Playwright locator such as"
        " getByRole('button', { name: 'Send' })"
    ),
]
Element = Annotated[str | None, Field(description="The element in words")]
Filename = Annotated[
    str | None,
    Field(description="Put the output into a file of the session, under this name"),
]
Whole = Annotated[int, _Number()]
"""An integer, with the type `number` in the schema, as in the schemas that callers know."""


@dataclass(frozen=True, slots=True)
class BrowserTool:
    """One tool. `answers` is the kind of modal state that the tool resolves; most other tools are refused meanwhile."""

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
    """Names of arguments, also nested ones, that hold typed text, which may be secret."""

    def seconds(self, config: BrowserConfig) -> float:
        """Return the seconds after which a call of this tool is cancelled and its page checked."""
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
    """Generates plain schemas: models pay by the word, and some clients support little of JSON Schema.

    The schemas have no titles and no references. An optional argument has one type without null, although null is accepted
    as absent.
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
    """Make a tool of a function.

    The type of the function's second parameter declares the arguments; its docstring is the default description.
    """

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
