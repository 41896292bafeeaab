"""Control sockets: the command line calls tools in a running process of the same user, over a Unix socket per node.

A process answers requests while it runs serve_control(). Its socket is in the folder of the locks of the nodes, which only
the user can enter. One connection carries one request and one response, each a line of JSON:
`{"tool": "session_close", "arguments": {"session_id": ID}, "owner": KEY}` is answered by `{"content": {...}}` or by
`{"error": {"code", "message", "recovery"}}`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from ..sockets.unix_sockets import (
    claim_socket_path,
    create_private_folder,
    is_listening,
    is_same_user,
    remove_socket,
    socket_path,
)
from .requests import ControlRequest

Handler = Callable[[ControlRequest], Awaitable[JSON]]
"""Runs a request and returns the content of the tool's result. A SessionError becomes the `error` of the response."""

REQUEST_BYTES = 4 << 20
"""A request may hold a state."""
RESPONSE_BYTES = 32 * 1024 * 1024
READ_SECONDS = 5.0
CONNECTIONS = 32

logger = logging.getLogger(__name__)


class ControlUnavailable(Exception):
    """Raised when the process that owns a session cannot be reached, or its answer is malformed."""


class ControlRefused(Exception):
    """Raised when the process answered with an error."""

    def __init__(self, code: str, message: str, recovery: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recovery = recovery


def _remove_stale(folder: Path) -> None:
    """Remove the sockets of killed nodes: those without a lock on which no process listens."""
    for path in [*folder.glob("*.sock"), *folder.glob("*.addr")]:
        if not path.with_suffix(".lock").exists() and not is_listening(
            socket_path(folder, path.stem)
        ):
            with suppress(OSError):
                remove_socket(folder, path.stem)


@asynccontextmanager
async def serve_control(
    folder: Path, node_id: str, handler: Handler, *, seconds: float = 120.0
) -> AsyncGenerator[Path]:
    """Answer requests for as long as the block runs; yields the path of the socket.

    Enter and leave it in one task. Leaving cancels running requests and removes the socket. A request may take
    `seconds`; the handler is cancelled then.

    Raises:
        OSError: the folder is not private to this user, or the socket cannot be created.
    """
    create_private_folder(folder)
    _remove_stale(folder)
    path = claim_socket_path(folder, node_id)
    listener = await anyio.create_unix_listener(path, mode=0o600)
    slots = anyio.Semaphore(CONNECTIONS)

    async def serve(stream: SocketStream) -> None:
        async with stream, slots:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
                await _answer(stream, handler, seconds)

    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            try:
                yield path
            finally:
                tasks.cancel_scope.cancel()
    finally:
        remove_socket(folder, node_id)


async def _answer(stream: SocketStream, handler: Handler, seconds: float) -> None:
    if not is_same_user(stream.extra(anyio.abc.SocketAttribute.raw_socket)):
        return
    with anyio.fail_after(READ_SECONDS):
        line = await _read_line(stream)
    try:
        if line is None:
            raise InvalidArgument(f"A request is one line of at most {REQUEST_BYTES} bytes.")
        request = ControlRequest.parse(line)
        with anyio.fail_after(seconds):
            response: JSON = {"content": await handler(request)}
    except SessionError as error:
        response = _error_response(error.code, error.message, error.recovery)
    except TimeoutError:
        response = _error_response(
            "call_timeout", "It took too long.", "Look at the session, then try again."
        )
    except Exception:
        logger.exception("a control request failed")
        response = _error_response(
            "internal", "It failed.", "See the log of the process that owns it."
        )
    with anyio.fail_after(READ_SECONDS):
        await stream.send(json.dumps(response, default=str).encode() + b"\n")


def _error_response(code: str, message: str, recovery: str) -> JSON:
    return {"error": {"code": code, "message": message, "recovery": recovery}}


async def _read_line(stream: SocketStream) -> bytes | None:
    """Return the line of a request, None when it is too long."""
    try:
        return await BufferedByteReceiveStream(stream).receive_until(b"\n", REQUEST_BYTES)
    except anyio.DelimiterNotFound:
        return None
    except anyio.IncompleteRead:
        raise anyio.ClosedResourceError from None


async def ask(
    folder: Path, node_id: str, request: ControlRequest, *, seconds: float = 125.0
) -> JSON:
    """Send one request to a node and return the content of the tool's result.

    Raises:
        ControlRefused: the node answered with an error.
        ControlUnavailable: the node cannot be reached, or gives no well-formed answer within `seconds`.
    """
    try:
        with anyio.fail_after(seconds):
            line = await _exchange(socket_path(folder, node_id), request)
        response: object = json.loads(line)
    except TimeoutError:
        raise ControlUnavailable(f"the process did not answer within {seconds:g} s") from None
    except (OSError, anyio.BrokenResourceError, anyio.IncompleteRead) as error:
        reason = error.strerror if isinstance(error, OSError) else "it hung up"
        raise ControlUnavailable(f"the process cannot be reached ({reason})") from None
    except (anyio.DelimiterNotFound, ValueError):
        raise ControlUnavailable("the process gave an answer that cannot be read") from None
    return _content(response)


async def _exchange(path: Path, request: ControlRequest) -> bytes:
    async with await anyio.connect_unix(path) as stream:
        await stream.send(json.dumps(request.to_json()).encode() + b"\n")
        return await BufferedByteReceiveStream(stream).receive_until(b"\n", RESPONSE_BYTES)


def _content(response: object) -> JSON:
    document = cast(JSON, response) if isinstance(response, dict) else {}
    content, error = document.get("content"), document.get("error")
    if isinstance(content, dict):
        return cast(JSON, content)
    if not isinstance(error, dict):
        raise ControlUnavailable("the process gave an answer that cannot be read")
    texts = cast(JSON, error)
    raise ControlRefused(*(str(texts.get(key, "")) for key in ("code", "message", "recovery")))
