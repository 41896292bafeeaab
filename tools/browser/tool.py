"""A browser tool: what a tool of the browser has beyond others, and the decorator that makes one of a function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, cast, get_origin

from pydantic import Field, GetJsonSchemaHandler, ValidationInfo, field_validator

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.services import ToolSpec
from ..definition import Arguments, BuiltinTool, types_of
from .call import BrowserCall
from .config import BrowserConfig, Capability
from .session.settle import LOAD_SECONDS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Modal = Literal["dialog", "chooser", "pause"]

TimeLimit = Literal["action", "navigation", "script", "wait"]
"""The time limit of a tool: the configured limit of this kind, plus some seconds for the effects."""

WAIT_SECONDS = 60.0

DURING_MODAL: Final = frozenset(
    f"browser_{name}"
    for name in (
        "close",
        "console_messages",
        "cookie_clear",
        "cookie_delete",
        "cookie_get",
        "cookie_list",
        "cookie_set",
        "get_config",
        "network_requests",
        "tabs",
    )
)
"""Tools that may run while a dialog or file chooser is open without resolving it: they need no response of the page."""


class BrowserArguments(Arguments):
    """The arguments of a browser tool.

    An empty text counts as absent where the argument is optional: some models fill in every argument.
    """

    may_be_empty: ClassVar[Collection[str]] = ()
    """The names of optional arguments for which an empty text has a meaning of its own."""

    @field_validator("*", mode="before")
    @classmethod
    def _drop_empty_text(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        field = cls.model_fields[name]
        if value != "" or name in cls.may_be_empty or field.default is not None:
            return value
        types = types_of(field.annotation)
        is_text = any(one is str or get_origin(one) is Literal for one in types)
        return None if is_text else value


class _Number:
    """Gives an integer the type `number` in the schema and keeps its bounds."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> JSON:
        return handler(core) | {"type": "number"}


Target = Annotated[
    str,
    Field(
        description="A ref of the latest snapshot (e12), a selector, or a locator: getByText('Home')"
    ),
]
Element = Annotated[str | None, Field(description="The element in words")]
Filename = Annotated[
    str | None,
    Field(description="Save as a file of the session"),
]
Whole = Annotated[int, _Number()]
"""An integer, with the type `number` in the schema, as in the schemas that callers know."""


_MISSING: Final = object()
_JSON_TYPES: Final = {
    "string_type": "string",
    "int_type": "number",
    "int_parsing": "number",
    "float_type": "number",
    "float_parsing": "number",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
}
"""The types of JSON that arguments must have, by the type of pydantic's error."""
_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
"""The types of JSON, by those of Python."""


@dataclass(frozen=True, slots=True)
class BrowserTool(BuiltinTool):
    """One tool of the browser, with the function that runs it."""

    run: Callable[[BrowserCall, Any], Awaitable[None]]
    limit: TimeLimit = field(default="action", kw_only=True)
    answers: Modal | None = field(default=None, kw_only=True)
    """The kind of modal state that the tool resolves; most other tools are refused meanwhile."""
    secret: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Names of arguments, also nested ones, that hold typed text, which may be secret."""

    def parse(self, arguments: Mapping[str, Any], *, unlisted: Collection[str] = ()) -> Any:
        """Return the arguments as the tool's model; see Tool.parse().

        Raises:
            InvalidArgument: One is wrong. The error begins as that of @playwright/mcp.
        """
        try:
            # The base class by name: a dataclass with slots is made anew, and super() would look for the old one.
            return BuiltinTool.parse(self, arguments, unlisted=unlisted)
        except InvalidArgument as error:
            text = f'Invalid arguments for tool "{self.name}": {error.message}'
            raise InvalidArgument(text) from None

    def describe_error(self, error: ErrorDetails, arguments: Mapping[str, Any]) -> str:
        """Return the message about a wrong argument; about one of a wrong type in the words of @playwright/mcp."""
        expected = _JSON_TYPES.get(error["type"])
        value: object = arguments
        schema: Any = self.definition()["inputSchema"]
        for part in error["loc"]:
            try:
                value = cast("Any", value)[part]
            except (KeyError, IndexError, TypeError):
                value = _MISSING
            schema = schema.get("items" if isinstance(part, int) else "properties", {})
            schema = schema if isinstance(part, int) else schema.get(part, {})
        if error["type"] == "missing":
            expected = schema.get("type")
        if expected is None:
            return BuiltinTool.describe_error(self, error, arguments)
        received = _NAMES.get(type(value), "undefined")
        location = ".".join(map(str, error["loc"]))
        return f"Invalid input: expected {expected}, received {received} at {location}."

    def seconds(self, config: BrowserConfig) -> float:
        """Return the seconds after which a call of this tool is cancelled and its page checked."""
        own = {
            "action": config.action_seconds,
            "navigation": config.navigation_seconds,
            "script": config.script_seconds,
            "wait": WAIT_SECONDS + config.action_seconds,
        }
        return own[self.limit] + config.settle_seconds + LOAD_SECONDS + 2.0

    def spec(self) -> ToolSpec:
        """Return the tool as a service offers it."""
        return ToolSpec(self.name, self.definition(), self.secret)


def tool(
    name: str,
    *,
    title: str,
    cap: Capability | Literal["logins"] = "core",
    read_only: bool = False,
    answers: Modal | None = None,
    limit: TimeLimit = "action",
    description: str | None = None,
    secret: Collection[str] = (),
) -> Callable[[Callable[[BrowserCall, Any], Awaitable[None]]], BrowserTool]:
    """Make a tool of a function.

    The type of the function's second parameter declares the arguments; its docstring is the default description.
    """

    def make(run: Callable[[BrowserCall, Any], Awaitable[None]]) -> BrowserTool:
        hints = typing.get_type_hints(run)
        parameters = list(inspect.signature(run).parameters)
        return BrowserTool(
            name,
            title,
            " ".join((description or run.__doc__ or "").split()),
            hints[parameters[1]],
            run,
            toolset=cap,
            read_only=read_only,
            destructive=not read_only,
            open_world=True,
            limit=limit,
            answers=answers,
            secret=frozenset(secret),
        )

    return make
