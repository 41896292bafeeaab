"""The body of a POST: read once, within a limit."""

from __future__ import annotations

import json
from collections import deque
from typing import Final

from mcp_types import JSONRPCError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..protocol.refusals import invalid_request

BODY_LIMIT: Final = 4 * 2**20
"""The SDK's limit of a body. A larger request is passed to the SDK, which refuses it."""


async def read_body(receive: Receive) -> tuple[bytes | None, list[Message]]:
    """Return the body and its ASGI messages. The body is None if the client disconnected or sent more than BODY_LIMIT."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return None, messages
        size += len(message.get("body", b""))
        if size > BODY_LIMIT:
            return None, messages
        if not message.get("more_body", False):
            break
    if len(messages) == 1:
        return messages[0].get("body", b""), messages
    return b"".join(message.get("body", b"") for message in messages), messages


def replay_messages(messages: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that first returns these messages again."""
    unread = deque(messages)

    async def receive_again() -> Message:
        return unread.popleft() if unread else await receive()

    return receive_again


class WholeBody:
    """Reads the body of a POST before it calls `app`, which would treat a client that leaves meanwhile as an error.

    It refuses a request whose id is null or a fraction, which the SDK would take for a notification, and a batch.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, messages = await read_body(receive)
        refusal = None if body is None else _refusal(body)
        if refusal is not None:
            answer = refusal.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await JSONResponse(answer, status_code=400)(scope, receive, send)
            return
        if body is not None or messages[-1]["type"] != "http.disconnect":
            await self._app(scope, replay_messages(messages, receive), send)


def _refusal(body: bytes) -> JSONRPCError | None:
    try:
        return invalid_request(json.loads(body))
    except (ValueError, RecursionError):
        return None


__all__ = ["BODY_LIMIT", "WholeBody", "read_body", "replay_messages"]
