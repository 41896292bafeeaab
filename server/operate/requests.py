"""Operator requests: calls of our own tools on behalf of the owners of sessions, sent to the process that holds them.

`{"verb": "operate", "tool": "session_close", "arguments": {"session_id": ID}, "owner": KEY}` is answered with the content of
the tool's result.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.records import LOCAL
from ..sockets.request import UNKNOWN_VERB, Refused, Unanswered, Unreachable, send_request

VERB: Final = "operate"


class ProcessUnavailable(Exception):
    """Raised when the process that owns a session cannot be reached, or its answer is malformed."""


class OperatorRequest(BaseModel):
    """One call of a tool. The model of the tool checks its arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    owner: str = LOCAL.key
    """The key of the principal for whom the tool runs."""
    cause: Literal["cli", "console", "operator"] = "cli"
    """The cause of a change in the journal of the session."""

    @classmethod
    def parse(cls, members: JSON) -> OperatorRequest:
        """Read a request.

        Raises:
            InvalidArgument: it is malformed.
        """
        try:
            return cls.model_validate(members)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, first["loc"])) or "request"
            raise InvalidArgument(f"{location}: {first['msg'].lower()}.") from None


async def ask(folder: Path, node: str, request: OperatorRequest, *, seconds: float = 125.0) -> JSON:
    """Send a request to a node, whose socket is in `folder`, and return the content of the tool's result.

    Raises:
        Refused: the node answered with an error.
        ProcessUnavailable: the node cannot be reached, or gives no well-formed answer within `seconds`.
    """
    send = partial(send_request, folder, node, VERB, request.model_dump(), seconds=seconds)
    try:
        exchange = await anyio.to_thread.run_sync(send, abandon_on_cancel=True)
    except Unreachable as error:
        raise ProcessUnavailable(f"the process cannot be reached ({error})") from None
    except Unanswered as error:
        raise ProcessUnavailable(f"the process gives no answer: {error}") from None
    except Refused as error:
        if error.code != UNKNOWN_VERB:
            raise
        raise ProcessUnavailable(error.message) from None
    exchange.connection.close()
    return dict(exchange.content)
