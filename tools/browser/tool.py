"""What a browser tool is: its name, what it takes, and the function that runs it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import GenerateJsonSchema

from ...sessions.services import JSON, ToolSpec
from .call import Call
from .config import BrowserConfig, Capability
from .settle import LOAD_SECONDS

Kind = Literal["read", "act", "destroy"]
"""read: changes nothing. act: changes the page or what is behind it. destroy: also takes something away for good."""

Modal = Literal["dialog", "chooser"]

Patience = Literal["action", "navigation", "script", "wait"]
"""How long a tool may take: as the configuration says of such things, and a while for what they cause."""

WAIT_SECONDS = 60.0


class Arguments(BaseModel):
    """The arguments of a tool. What is not among them is refused, with the name that was probably meant."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


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

    def seconds(self, config: BrowserConfig) -> float:
        """Return how long a call of it may take before its page is looked after."""
        own = {
            "action": config.action_seconds,
            "navigation": config.navigation_seconds,
            "script": config.script_seconds,
            "wait": WAIT_SECONDS,
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
        return ToolSpec(self.name, definition)


class _PlainSchema(GenerateJsonSchema):
    """Schemas without a title for each property, which models pay for by the word."""

    def generate(self, schema: Any, mode: Any = "validation") -> JSON:
        found = super().generate(schema, mode)
        for model in (found, *found.get("$defs", {}).values()):
            model.pop("title", None)
            model.pop("description", None)
            for part in model.get("properties", {}).values():
                part.pop("title", None)
        return found


def tool(
    name: str,
    *,
    title: str,
    cap: Capability = "core",
    kind: Kind = "act",
    answers: Modal | None = None,
    patience: Patience = "action",
) -> Callable[[Callable[[Call, Any], Awaitable[None]]], BrowserTool]:
    """Make a tool of a function. Its docstring is the description, its second parameter's type the arguments."""

    def make(run: Callable[[Call, Any], Awaitable[None]]) -> BrowserTool:
        hints = typing.get_type_hints(run)
        parameters = list(inspect.signature(run).parameters)
        text = inspect.cleandoc(run.__doc__ or "").replace("\n", " ")
        return BrowserTool(
            name, cap, title, text, hints[parameters[1]], kind, answers, patience, run
        )

    return make


__all__ = ["Arguments", "BrowserTool", "Kind", "Patience", "tool"]
