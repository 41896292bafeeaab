"""Streamable HTTP as a transport, through the SDK's client."""

from __future__ import annotations

import functools
import socket
import ssl
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
import orjson
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from ....sessions.json_codec import JSON
from ..list_changes import LISTEN
from ..sdk import redirect_location
from .base import TransportResumption, UpstreamTransport
from .http_errors import TOO_LONG, HttpRefusal, retry_after

RESULT_BYTES: Final = 64 * 2**20
"""The longest message accepted from an upstream, as an event or as a JSON body."""

CONNECT_SECONDS: Final = 15.0
WRITE_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 0.25
REFUSALS: Final = 256
"""Responses that are no answer and wait to be asked for."""

_MESSAGES: Final = ("application/json", "text/event-stream")
"""The content types of an answer."""

_KEEPALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
        if hasattr(socket, name)
    ),
]


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """Return the shared context of this process: creating one takes 20 ms and almost a megabyte."""
    return httpx2.create_ssl_context()


class HttpClient(httpx2.AsyncClient):
    """The HTTP client of one connection. It records why requests failed and refuses messages that are too long.

    `session_id` is the MCP session of an earlier process. The client answers the SDK's two messages of a handshake itself,
    because the SDK takes a session id only from the answer to `initialize`. `answers_in_stream`: an event stream of its own
    brings the answers, so that any success is an acknowledgement.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        session_id: str | None = None,
        *,
        answers_in_stream: bool = False,
    ) -> None:
        # No read timeout: callers decide how long a call may take.
        super().__init__(
            headers={"accept-encoding": "identity", **headers},
            verify=ssl_context(),
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None, write=WRITE_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=4),
        )
        self.unsent: set[int] = set()
        self.refusals: dict[int | str, HttpRefusal] = {}
        """The responses that are no answer in MCP, by the id of the request."""
        self._answers_in_stream = answers_in_stream
        self.session_id = session_id
        self.leaves_session = False
        """Whether the MCP session is to be left open."""
        self._is_confirmed = session_id is None
        """Whether the server is known to have our MCP session. That of an earlier process may have ended."""
        self._replayed_messages = 0 if session_id is None else 2
        """Number of the handshake's messages that the client will answer itself."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "POST":
            # The request that follows a redirect has its content as a stream.
            await request.aread()
        local_response = self._local_response(request)
        if local_response is not None:
            return local_response
        is_subscription = request.headers.get(MCP_METHOD_HEADER) == LISTEN
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if is_subscription:
                return _unreachable(request)
            self._note_unsent(request)
            url = request.url
            port = f":{url.port}" if url.port is not None else ""
            address = f"{url.scheme}://{url.host}{port}"
            cause = str(error).rstrip(".") or "no answer"
            raise type(error)(f"{cause} at {address}", request=request) from error
        except httpx2.TransportError:
            if is_subscription:
                return _unreachable(request)
            raise
        if request.method == "POST":
            self._note_session(request, response)
            if not is_subscription:
                self._note_refusal(request, response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _BoundedBody(response.stream)
        elif request.method == "POST":
            response.stream = _DrainedStream(response.stream)
        return response

    def take_refusal(self, number: int | str) -> HttpRefusal | None:
        """Return the response to a request, once, if it was no answer in MCP."""
        return self.refusals.pop(number, None)

    def _local_response(self, request: httpx2.Request) -> httpx2.Response | None:
        """Return the response to a request that is not to be sent, None for any other."""
        if request.method == "DELETE" and (self.leaves_session or not self._is_confirmed):
            return httpx2.Response(204, request=request)
        if request.method != "POST" or not self._replayed_messages:
            return None
        self._replayed_messages -= 1
        if not self._replayed_messages:
            return httpx2.Response(202, request=request)
        answer: JSON = {"jsonrpc": "2.0", "id": orjson.loads(request.content)["id"], "result": {}}
        headers = {MCP_SESSION_ID: self.session_id or ""}
        return httpx2.Response(200, json=answer, headers=headers, request=request)

    def _note_session(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Note the MCP session that a response begins or confirms."""
        if MCP_SESSION_ID not in request.headers:
            session_id = response.headers.get(MCP_SESSION_ID)
            if session_id and orjson.loads(request.content).get("method") == "initialize":
                self.session_id = session_id
        elif response.is_success:
            self._is_confirmed = True

    def _note_refusal(self, request: httpx2.Request, response: httpx2.Response) -> None:
        refusal = self._refusal_in(response)
        # A redirect that the SDK follows is noted too, and removed with the response that follows it.
        if (refusal is None and not self.refusals) or (number := _request_id(request)) is None:
            return
        if refusal is None:
            self.refusals.pop(number, None)
        else:
            self.refusals[number] = refusal
            if len(self.refusals) > REFUSALS:
                # Nobody asks for those of cancelled requests.
                del self.refusals[next(iter(self.refusals))]

    def _refusal_in(self, response: httpx2.Response) -> HttpRefusal | None:
        if response.is_success and self._answers_in_stream:
            return None
        is_answer = response.is_success and response.status_code != 202
        refusal = refusal_in(response)
        return None if is_answer and refusal.content_type.startswith(_MESSAGES) else refusal

    def _note_unsent(self, request: httpx2.Request) -> None:
        number = _request_id(request) if request.method == "POST" else None
        if isinstance(number, int):
            self.unsent.add(number)


def refusal_in(response: httpx2.Response) -> HttpRefusal:
    """Return what a response says that is no answer in MCP."""
    location = redirect_location(response)
    return HttpRefusal(
        response.status_code,
        response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        "" if location is None else str(location),
        retry_after(response.headers),
        response.request.url.netloc.decode(errors="replace"),
    )


def _request_id(request: httpx2.Request) -> int | str | None:
    """Return the id of the JSON-RPC request in an HTTP request, None for any other message."""
    message: JSON = orjson.loads(request.content)
    return message.get("id") if "method" in message else None


def _unreachable(request: httpx2.Request) -> httpx2.Response:
    """Return a response for a subscription that failed with a network error. An exception would end the whole transport."""
    return httpx2.Response(503, request=request)


class _BoundedBody(httpx2.AsyncByteStream):
    """A response body that fails when it becomes too long. A byte order mark at its beginning is dropped."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            if not size:
                chunk = chunk.removeprefix(BOM_UTF8)
            size += len(chunk)
            if size > RESULT_BYTES:
                raise httpx2.StreamError(f"{TOO_LONG} {RESULT_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _DrainedStream(httpx2.AsyncByteStream):
    """The event stream of one answer. Closing it first reads it to its end, so that its TCP connection can be reused.

    The SDK (2.3) closes it right after the answer, just before its end arrives.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self._chunks: AsyncIterator[bytes] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = aiter(self._inner)
        async for chunk in self._chunks:
            yield chunk
        self._chunks = None

    async def aclose(self) -> None:
        chunks, self._chunks = self._chunks, None
        try:
            if chunks is not None:
                with anyio.move_on_after(DRAIN_SECONDS):
                    async for _ in chunks:
                        pass
        except httpx2.HTTPError:
            pass  # It is closed below in any case.
        finally:
            await self._inner.aclose()


class McpSession(TransportResumption):
    """The session that a server keeps for one client, under an id. It outlives this process unless its end is asked for."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    @property
    def session_id(self) -> str | None:
        return self._client.session_id

    def leave(self) -> None:
        self._client.leaves_session = True


class StreamableHttpTransport:
    """The SDK's streams over one HTTP client."""

    http = True
    pid = None

    def __init__(self, client: HttpClient, read_stream: Any, write_stream: Any) -> None:
        self._client = client
        self.resumption = McpSession(client)
        self.read_stream = read_stream
        self.write_stream = write_stream

    def is_unsent(self, number: int) -> bool:
        return number in self._client.unsent

    def take_refusal(self, number: int) -> HttpRefusal | None:
        return self._client.take_refusal(number)

    def last_output(self) -> str:
        return ""

    def noise(self) -> str:
        return ""

    @property
    def has_session(self) -> bool:
        return self._client.session_id is not None

    async def describe_end(self) -> tuple[str, str]:
        return "the server ended the connection", ""


@asynccontextmanager
async def open_http(url: str, headers: Mapping[str, str]) -> AsyncGenerator[UpstreamTransport]:
    """Connect to a Streamable HTTP endpoint. Leaving the block ends the MCP session.

    A network error in any request ends the whole transport: it is raised in the task that entered the block.
    """
    async with HttpClient(headers) as client, _open(url, client) as transport:
        yield transport


@asynccontextmanager
async def resume_http(
    url: str, headers: Mapping[str, str], *, session_id: str, version: str
) -> AsyncGenerator[UpstreamTransport]:
    """Connect to a Streamable HTTP endpoint under the MCP session of an earlier process; see open_http().

    `version` is the protocol version of the session. Nothing is sent: the first request shows whether the server still
    knows the session. Only if it does, leaving the block ends the session.
    """
    async with HttpClient(headers, session_id) as client, _open(url, client) as transport:
        await _replay_handshake(transport, version)
        yield transport


@asynccontextmanager
async def _open(url: str, client: HttpClient) -> AsyncGenerator[UpstreamTransport]:
    async with streamable_http_client(url, http_client=client, max_sse_event_size=RESULT_BYTES) as (
        read_stream,
        write_stream,
    ):
        yield StreamableHttpTransport(client, read_stream, write_stream)


async def _replay_handshake(transport: UpstreamTransport, version: str) -> None:
    """Give the SDK the messages of a handshake, which the client answers, so that it uses the session and its stream."""
    initialize = JSONRPCRequest(jsonrpc="2.0", id=0, method="initialize", params={})
    await transport.write_stream.send(SessionMessage(initialize))
    await transport.read_stream.receive()
    initialized = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
    metadata = ClientMessageMetadata(headers={MCP_PROTOCOL_VERSION_HEADER: version})
    await transport.write_stream.send(SessionMessage(initialized, metadata))


__all__ = [
    "RESULT_BYTES",
    "HttpClient",
    "StreamableHttpTransport",
    "open_http",
    "refusal_in",
    "resume_http",
    "ssl_context",
]
