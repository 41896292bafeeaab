"""Parts of ASGI requests: the departure of a client, messages that were read already, and paths with a slash at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import cast

import anyio
from starlette.types import Message, Receive, Scope


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


def without_slash(scope: Scope, mounts: tuple[str, ...]) -> Scope:
    """Return the scope of a request without the slash at the end of its path, which stays below `mounts`."""
    path, raw = cast("str", scope["path"]), cast("bytes", scope["raw_path"])
    # A slash that is encoded belongs to the name before it.
    if path == "/" or path.startswith(mounts) or not raw.endswith(b"/"):
        return scope
    return {**scope, "path": path[:-1], "raw_path": raw[:-1]}
