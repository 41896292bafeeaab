"""The form of a control request: the call of one of our own tools on behalf of the owner of a session."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL


class ControlRequest(BaseModel):
    """One call of a tool. The model of the tool checks its arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    owner: str = LOCAL.key
    """The key of the principal for whom the tool runs."""

    @classmethod
    def parse(cls, line: bytes) -> ControlRequest:
        """Read a request.

        Raises:
            InvalidArgument: the line is no JSON, or no request.
        """
        try:
            return cls.model_validate(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(_describe_error(error)) from None

    def to_json(self) -> JSON:
        """Return the request as it travels."""
        return {"tool": self.tool, "arguments": self.arguments, "owner": self.owner}


def _describe_error(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "A request is one line of JSON."
    first = error.errors(include_url=False, include_input=False)[0]
    location = ".".join(map(str, first["loc"])) or "request"
    return f"{location}: {first['msg'].lower()}."


__all__ = ["ControlRequest"]
