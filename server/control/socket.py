"""Control sockets: one process of a user asks another for a session that is open there, over a Unix socket per node.

The command line sends the requests; the handler that a process gives to serve_control() answers them. The socket lies beside
the lock of its node, in a folder that only the user can enter. One connection carries one request and one response, each a
line of JSON: `{"tool": "session_close", "arguments": {"session_id": ID}, "owner": KEY}` is answered by `{"content": {...}}`
or by `{"error": {"code", "message", "recovery"}}`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ...sessions.errors import InvalidArgument, SessionError
from ...sessions.json_codec import JSON
from .requests import ControlRequest

Handler = Callable[[ControlRequest], Awaitable[JSON]]
"""Runs a request and returns the content of the tool's result. A SessionError becomes the `error` of the response."""

REQUEST_BYTES = 4 << 20
"""A request may hold a state."""
RESPONSE_BYTES = 32 * 1024 * 1024
READ_SECONDS = 5.0
CONNECTIONS = 32

_PATH_BYTES = 100  # sun_path holds 104 on macOS and 108 on Linux, its end included

logger = logging.getLogger(__name__)


class ControlUnavailable(Exception):
    """Raised when the process that owns a session cannot be reached, or its answer is malformed."""


class ControlRefused(Exception):
    """Raised when the process answered that it cannot do it."""

    def __init__(self, code: str, message: str, recovery: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recovery = recovery


def socket_path(folder: Path, node_id: str) -> Path:
    """Return the path of a node's socket: in `folder`, or elsewhere when that path is too long for a socket."""
    path = folder / f"{node_id}.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    # Two processes may have different temporary folders, so the server writes the path into a file.
    with suppress(OSError):
        return Path(_note(folder, node_id).read_text())
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:20]
    return Path(tempfile.gettempdir()) / f"statehold-{os.getuid()}" / f"{name}.sock"


def forget(folder: Path, node_id: str) -> None:
    """Remove the socket files of a dead node."""
    socket_path(folder, node_id).unlink(missing_ok=True)
    _note(folder, node_id).unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove the sockets of killed nodes. Their locks are gone, and no process listens on them."""
    for path in [*folder.glob("*.sock"), *folder.glob("*.addr")]:
        if not path.with_suffix(".lock").exists() and not _listens(socket_path(folder, path.stem)):
            with suppress(OSError):
                forget(folder, path.stem)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _note(folder: Path, node_id: str) -> Path:
    return folder / f"{node_id}.addr"


@asynccontextmanager
async def serve_control(
    folder: Path, node_id: str, handler: Handler, *, seconds: float = 120.0
) -> AsyncGenerator[Path]:
    """Answer requests for as long as the block runs; yields the path of the socket.

    Enter and leave it in one task. Leaving cancels running requests and removes the socket. A request may take
    `seconds`; the handler is cancelled then.

    Raises:
        OSError: when the folder is not private to this user, or the socket cannot be made.
    """
    path = _prepare(folder, node_id)
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
        forget(folder, node_id)


def _prepare(folder: Path, node_id: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_open(folder)
    _sweep(folder)
    path = socket_path(folder, node_id)
    if path.parent != folder:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _refuse_open(path.parent)
        note = _note(folder, node_id)
        note.touch(0o600)
        note.write_text(str(path))
    return path


def _refuse_open(folder: Path) -> None:
    """Refuse a folder in which another user could create a socket; all users share the temporary folder."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, "other users may enter it; run: chmod 700", os.fspath(folder)
        )


async def _answer(stream: SocketStream, handler: Handler, seconds: float) -> None:
    if not _same_user(stream):
        return
    with anyio.fail_after(READ_SECONDS):
        line = await _read(stream)
    try:
        if line is None:
            raise InvalidArgument(f"A request is one line of at most {REQUEST_BYTES} bytes.")
        request = ControlRequest.read(line)
        with anyio.fail_after(seconds):
            response: JSON = {"content": await handler(request)}
    except SessionError as error:
        response = _error(error.code, error.message, error.recovery)
    except TimeoutError:
        response = _error(
            "call_timeout", "It took too long.", "Look at the session, then try again."
        )
    except Exception:
        logger.exception("a control request failed")
        response = _error("internal", "It failed.", "See the log of the process that owns it.")
    with anyio.fail_after(READ_SECONDS):
        await stream.send(json.dumps(response, default=str).encode() + b"\n")


def _error(code: str, message: str, recovery: str) -> JSON:
    return {"error": {"code": code, "message": message, "recovery": recovery}}


def _same_user(stream: SocketStream) -> bool:
    # The folder excludes other users already; where the kernel knows the peer's user, check that as well.
    if sys.platform != "linux":
        return True
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (os.getuid(), 0)


async def _read(stream: SocketStream) -> bytes | None:
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
        ControlUnavailable: it cannot be reached, or answers nothing sensible within `seconds`.
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
    found = cast(JSON, response) if isinstance(response, dict) else {}
    content, error = found.get("content"), found.get("error")
    if isinstance(content, dict):
        return cast(JSON, content)
    if not isinstance(error, dict):
        raise ControlUnavailable("the process gave an answer that cannot be read")
    texts = cast(JSON, error)
    raise ControlRefused(*(str(texts.get(key, "")) for key in ("code", "message", "recovery")))
