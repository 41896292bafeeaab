"""Streamable HTTP as a transport: each request is one POST, so there is no connection that could be lost between them."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import httpx2
import orjson

from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import well_formed
from ...sessions.wording import connection_failure
from ...tools.http_client import http_options, server_of
from ..errors import ServerUnreachable
from ..results import object_of
from .base import NAMED_BY, VERSION, AccessDenied, JsonRpcError, ProgressCallback, TransportBroken

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON

logger = logging.getLogger("statehold.client")

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 60.0
"""Seconds of silence after which a request fails. A server that works on it sends a ping every 15 seconds."""
DRAIN_SECONDS: Final = 1.0
"""Seconds that a stream may take to end after the answer."""
NO_ANSWER: Final = -32000
"""The code of an HTTP error without a JSON-RPC answer: the request was refused before it was read."""
KEEP_SECONDS: Final = 30.0
"""Seconds that an unused connection is kept: fewer than on the server, which must not close it during a request."""

MAX_CONNECTIONS: Final = 64
"""Connections that are open at once. More make a server slower: each takes a turn in its event loop, and in ours."""

_PLAIN: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_BROKEN: Final = (httpx2.RequestError, httpx2.StreamError)
_TRANSIENT: Final = frozenset({408, 425, 429})
"""HTTP statuses below 500 that a retry may avoid; all others below 500 are final."""
_BASE: Final = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": VERSION,
}


class HttpTransport:
    """The transport over HTTP. `headers` go with every request.

    At most `max_connections` requests run at once. Others wait for their turn, in the order in which they came.
    """

    breaks = True

    def __init__(
        self, url: str, headers: Mapping[str, str], *, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        if max_connections < 1:
            raise ValueError("max_connections should be at least 1")
        self.url = url
        # The pool of the library gets slow with requests that wait in it.
        self._free_connections = anyio.Semaphore(max_connections, fast_acquire=True)
        self._closed = False
        self._numbers = itertools.count(1)
        try:
            options = http_options(url)
        except httpx2.ProxyError as error:
            raise ServerUnreachable(f"Statehold cannot be reached: {error}.") from None
        self._http = httpx2.AsyncClient(
            **options,
            headers={**headers, **_BASE},
            timeout=httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEP_SECONDS),
        )

    async def open(self) -> None:
        """Do nothing: the first request connects."""

    async def aclose(self) -> None:
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._http.aclose()

    async def request(
        self,
        method: str,
        params: JSON,
        *,
        headers: Mapping[str, str] | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> JSON:
        if self._closed:
            raise TransportBroken("it was closed", sent=False)
        number = next(self._numbers)
        if progress_callback is not None:
            params["_meta"]["progressToken"] = number
        body = encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        header_values = {"mcp-method": method}
        if method in NAMED_BY:
            header_values["mcp-name"] = _header_value(params[NAMED_BY[method]])
        if headers:
            header_values.update(headers)
        request = self._http.build_request("POST", self.url, content=body, headers=header_values)
        try:
            async with self._free_connections:
                response = await self._http.send(request, stream=True)
                try:
                    return await self._read_answer(response, number, progress_callback)
                finally:
                    await response.aclose()
        except _NOT_SENT as error:
            raise TransportBroken(
                f"{connection_failure(error) or _text_of(error)} ({server_of(self.url, with_path=True)})",
                sent=False,
            ) from None
        except _BROKEN as error:
            raise TransportBroken(
                f"{_text_of(error)}{_hint(error, self.url)} ({server_of(self.url, with_path=True)})",
                sent=True,
            ) from None

    async def _read_answer(
        self, response: httpx2.Response, number: int, progress_callback: ProgressCallback | None
    ) -> JSON:
        kind, status = response.headers.get("content-type", ""), response.status_code
        if kind.startswith("text/event-stream"):
            return await self._read_stream(response, number, progress_callback)
        body = await response.aread()
        message = _parse(body) if kind.startswith("application/json") else None
        if status in (401, 403):
            raise AccessDenied(_describe_refusal(response, message))
        if message is not None and _is_answer(message, number):
            return result_of(message)
        if 300 <= status < 500 and status not in _TRANSIENT:
            raise JsonRpcError(NO_ANSWER, _describe_refusal(response, message))
        # Such an answer comes from a proxy, and the request may have reached the server.
        raise TransportBroken(
            f"status {status} instead of an answer ({server_of(self.url, with_path=True)})",
            sent=True,
        )

    async def _read_stream(
        self, response: httpx2.Response, number: int, progress_callback: ProgressCallback | None
    ) -> JSON:
        events = aiter(httpx2.EventSource(response, max_event_size=None))
        async for event in events:
            message = _parse(event.data)
            if message is None:
                continue
            if _is_answer(message, number):
                # Read the stream to its end, so that the connection can be used again.
                with suppress(*_BROKEN), anyio.move_on_after(DRAIN_SECONDS):
                    async for _ in events:
                        pass
                return result_of(message)
            if progress_callback is not None and message.get("method") == "notifications/progress":
                await report_progress(progress_callback, message.get("params"))
        raise TransportBroken("the stream ended without an answer", sent=True)


def _is_answer(message: JSON, number: int) -> bool:
    """Whether this is the answer to our request, and not JSON of a proxy."""
    if "method" in message or message.get("jsonrpc") != "2.0":
        return False
    error = message.get("error")
    if error is None:
        return message.get("id") == number and isinstance(message.get("result"), dict)
    code: object = object_of(error).get("code")
    return message.get("id") in (number, None) and isinstance(code, int)


def result_of(message: JSON) -> JSON:
    """Return the result of an answer, or raise JsonRpcError."""
    error = message.get("error")
    if error is None:
        return message["result"]
    raise JsonRpcError(int(error.get("code", 0)), str(error.get("message", "")), error.get("data"))


async def report_progress(callback: ProgressCallback, params: object) -> None:
    """Report progress to a caller; an error of its callback does not fail the call."""
    if not isinstance(params, dict):
        return
    progress = cast("JSON", params)
    try:
        await callback(progress.get("progress", 0), progress.get("total"), progress.get("message"))
    except Exception:
        logger.exception("a progress callback failed")


def encode(message: JSON) -> bytes:
    """Return a message as JSON.

    Raises:
        InvalidArgument: a value in it is not JSON.
    """
    try:
        try:
            body = orjson.dumps(message, option=_PLAIN)
        except TypeError:
            # Integers beyond 64 bits, which JSON knows and orjson does not.
            text = json.dumps(message, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
            return text.encode()
        if b"null" in body:
            # orjson writes null for a number that is not finite.
            json.dumps(message, allow_nan=False)
        return body
    except (TypeError, ValueError, RecursionError) as error:
        # Above the arguments of a tool are the parameters of its call.
        path = ".".join(["", *_path_outside_json(message)]).rpartition(".arguments")[2]
        raise InvalidArgument(f"arguments{path}: should be JSON ({error}).") from None


def _path_outside_json(message: object) -> tuple[str, ...]:
    """Return the path to a value that JSON cannot hold; an empty one if it is not found within 100 levels."""
    values: list[tuple[object, tuple[str, ...], frozenset[int]]] = [(message, (), frozenset())]
    while values:
        value, path, parents = values.pop()
        number = id(value)
        if isinstance(value, dict):
            items = list(cast("dict[object, object]", value).items())
        elif isinstance(value, list | tuple):
            items = list(enumerate(cast("list[object]", value)))
        elif _is_json(value):
            continue
        else:
            return path
        if number in parents:
            return path
        if len(path) < 100:
            inside = parents | {number}
            values += [(item, (*path, str(key)), inside) for key, item in reversed(items)]
    return ()


def _is_json(value: object) -> bool:
    if isinstance(value, str):
        return well_formed(value) == value
    return (
        value is None
        or isinstance(value, int)
        or (isinstance(value, float) and math.isfinite(value))
    )


def _parse(body: bytes | str) -> JSON | None:
    try:
        # Not orjson, which would turn an integer beyond 64 bits into a float.
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("JSON", message) if isinstance(message, dict) else None


def _header_value(value: str) -> str:
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    from mcp.shared.inbound import encode_header_value

    return encode_header_value(value)


def _describe_refusal(response: httpx2.Response, message: JSON | None) -> str:
    reason = str(
        object_of(object_of(message).get("error")).get("message") or response.reason_phrase
    )
    return f"The server answered with status {response.status_code}: {reason}"


def _hint(error: Exception, url: str) -> str:
    """Return what may be wrong with an address at which a connection ends without an answer."""
    is_torn = isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError)
    is_plain = is_torn and url.startswith("http:")
    return " If it speaks TLS, the address begins with https:" if is_plain else ""


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


__all__ = ["HttpTransport", "encode", "result_of", "report_progress"]
