"""Parts of ASGI requests: the departure of a client, messages that were read already, and paths with a slash at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable, Sequence

import anyio
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send


async def wait_disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected. Parts of the body that come meanwhile are dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a scope when the client has disconnected."""
    await wait_disconnected(receive)
    scope.cancel()


async def has_disconnected(receive: Receive) -> bool:
    """Return whether the client has disconnected, without waiting. For a request whose body was read."""
    with anyio.CancelScope() as scope:
        # receive() returns a known event at once; otherwise it would wait, and is cancelled.
        scope.cancel()
        return (await receive())["type"] == "http.disconnect"
    return False


def replay_messages(messages: Iterable[Message], receive: Receive) -> Receive:
    """Return a `receive` that first returns these messages again."""
    unread = deque(messages)

    async def receive_again() -> Message:
        return unread.popleft() if unread else await receive()

    return receive_again


def answer_without_slash(app: ASGIApp, routes: Sequence[BaseRoute]) -> ASGIApp:
    """Return an application that takes a slash from the end of a path, except below the mounts among the routes."""
    mounts = tuple(f"{route.path}/" for route in routes if isinstance(route, Mount))

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope.get("path", "")
        if path.endswith("/") and path != "/" and not path.startswith(mounts):
            raw: bytes = scope["raw_path"]
            # One that is encoded belongs to the name before it.
            if raw.endswith(b"/"):
                scope = {**scope, "path": path[:-1], "raw_path": raw[:-1]}
        return app(scope, receive, send)

    return answer


__all__ = [
    "answer_without_slash",
    "cancel_when_left",
    "has_disconnected",
    "replay_messages",
    "wait_disconnected",
]
