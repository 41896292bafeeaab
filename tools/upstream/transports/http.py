"""Streamable HTTP as a transport, through the SDK's client."""

from __future__ import annotations

import math
import socket
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import httpx2
import orjson
from mcp.client.streamable_http import LAST_EVENT_ID, MCP_SESSION_ID, streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from ....sessions.json_codec import JSON
from ....sessions.owned_map import BoundedMap
from ....sessions.wording import connection_failure
from ...http_client import http_options, server_of
from ...logins.masked_response import masked
from ...logins.masks import MASKS, hide
from ..change_stream import LISTEN, Reopening
from ..oauth.bearer_auth import LOGIN, TokenUnavailable
from ..sdk import redirect_location
from .answer_stream import AnswerStream
from .base import TransportResumption, UpstreamTransport
from .http_errors import TOO_LONG, BrokenExchange, HttpRefusal, challenge_in, retry_after, words_in
from .key_auth import KEY_ERROR, KeyMissing
from .pipe_requests import CAUSE, SOLE_ANSWER

RESULT_BYTES: Final = 64 * 2**20
"""The longest message accepted from an upstream, as an event or as a JSON body."""

CONNECT_SECONDS: Final = 15.0
WRITE_SECONDS: Final = 60.0
MAX_FAILURES: Final = 256
"""Failed requests that wait to be asked for."""
WORDS_SECONDS: Final = 2.0
"""Seconds to wait for the body of an HTTP error, which is read for its words."""
OVERLOADS: Final = (429, 502, 503, 504)
"""Statuses after which the stream of the server's own messages is asked for again, although it was never open."""

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


class HttpClient(httpx2.AsyncClient):
    """The HTTP client of one connection. It records why requests failed and refuses messages that are too long.

    A network error is the failure of one request: it never reaches the SDK, in which it would end the whole transport. The
    stream of the server's own messages (GET) is opened again for as long as the client lives.

    `session_id` is the MCP session of an earlier process. The client answers the SDK's two messages of a handshake itself,
    because the SDK takes a session id only from the answer to `initialize`. `answers_in_stream`: an event stream of its own
    brings the answers, so that any success is an acknowledgement.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        session_id: str | None = None,
        *,
        auth: httpx2.Auth | None = None,
        answers_in_stream: bool = False,
    ) -> None:
        # No read timeout: callers decide how long a call may take.
        super().__init__(
            headers={"accept-encoding": "identity", **headers},
            **http_options(url),
            auth=auth,
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None, write=WRITE_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=4),
        )
        self._failures = BoundedMap[int | str, HttpRefusal | BrokenExchange](MAX_FAILURES)
        """The responses that are no answer in MCP, and the requests without a response, by the id of the request."""
        self._redirects = BoundedMap[int | str, set[str]](MAX_FAILURES)
        """The addresses that redirected a request, by its id, until there is another response."""
        self._answers_in_stream = answers_in_stream
        self._reopening = Reopening()
        self._listening_task = 0
        """The id of the task in which the SDK reads the stream of the server's own messages."""
        self._has_listened = False
        self._waits_to_listen = False
        """Whether the next try to open that stream is to be delayed."""
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
        if self._is_listening(request):
            return await self._listen(request, options)
        is_post = request.method == "POST"
        try:
            response = await self._exchange(request, options)
        except KeyMissing:
            response = httpx2.Response(401, request=request)
        except httpx2.TransportError as error:
            if not is_post:
                if isinstance(error, TokenUnavailable):
                    raise
                raise type(error)(_cause(error, request), request=request) from error
            self._record_break(request, error)
            return httpx2.Response(503, request=request)
        if is_post:
            self._record_session(request, response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_stream:
            response.stream = _BoundedBody(response.stream)
        if is_post:
            note = partial(self._record_break, request)
            response.stream = _BreakableBody(response.stream, note)
            if not is_stream and response.is_success:
                SOLE_ANSWER.set(request.content)
        number = CAUSE.get()
        if is_stream and (is_post or number is not None) and not self._answers_in_stream:
            response.stream = AnswerStream(response.stream, number, RESULT_BYTES)
        if response.status_code >= 400:
            await _read_words(response)
        elif is_post and not is_stream and "content-encoding" in response.headers:
            try:
                await response.aread()
            except httpx2.DecodingError as error:
                self._record_break(request, error)
                return httpx2.Response(503, request=request)
        if is_post and request.headers.get(MCP_METHOD_HEADER) != LISTEN:
            self._record_refusal(request, response)
        return response

    def take_failure(self, number: int | str) -> HttpRefusal | BrokenExchange | None:
        """Return why a request has no answer in MCP, once."""
        self._redirects.pop(number, None)
        return self._failures.pop(number, None)

    async def _exchange(
        self, request: httpx2.Request, options: Mapping[str, Any]
    ) -> httpx2.Response:
        """Send a request. One that expects no answer is sent twice if it fails, because a repeat of it does nothing."""
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError:
            if request.method != "POST" or _request_id(request) is not None:
                raise
            response = await super().send(request, **options)
        return masked(response)

    def _is_listening(self, request: httpx2.Request) -> bool:
        """Return whether a request opens the stream of the server's own messages; others resume that of an answer."""
        if request.method != "GET" or self._answers_in_stream:
            return False
        task = anyio.get_current_task().id
        if LAST_EVENT_ID not in request.headers:
            self._listening_task = task
        return task == self._listening_task

    async def _listen(self, request: httpx2.Request, options: Mapping[str, Any]) -> httpx2.Response:
        """Open the stream of the server's own messages, however long that takes, unless the server has none.

        The SDK (2.3) asks for a stream again when it ends, without growing pauses, and gives up after two errors.
        """
        while True:
            if self._waits_to_listen:
                await self._reopening.pause()
            self._waits_to_listen = True
            try:
                response = masked(await super().send(request, **options))
            except httpx2.TransportError:
                continue
            status = response.status_code
            if status in OVERLOADS or (self._has_listened and status >= 400):
                await response.aclose()
                continue
            self._waits_to_listen = self._has_listened = self._has_listened or response.is_success
            if response.is_success:
                self._reopening.record_open()
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                response.stream = _BreakableBody(response.stream, lambda error: None)
            return response

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

    def _record_session(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Record the MCP session that a response begins or confirms."""
        if MCP_SESSION_ID not in request.headers:
            session_id = response.headers.get(MCP_SESSION_ID)
            if session_id and orjson.loads(request.content).get("method") == "initialize":
                self.session_id = session_id
        elif response.is_success:
            self._is_confirmed = True

    def _record_refusal(self, request: httpx2.Request, response: httpx2.Response) -> None:
        is_answer = self._is_answer(response)
        # A redirect that the SDK follows is noted too, and removed with the response that follows it.
        if (is_answer and not self._redirects) or (number := _request_id(request)) is None:
            return
        earlier = self._redirects.pop(number, set[str]())
        if is_answer:
            if earlier:
                self._failures.pop(number, None)
            return
        refusal = refusal_in(response, earlier)
        if refusal.location:
            self._redirects[number] = {*earlier, _address(request)}
        self._failures[number] = refusal

    def _is_answer(self, response: httpx2.Response) -> bool:
        if not response.is_success or self._answers_in_stream:
            return response.is_success
        return response.status_code != 202 and _content_type(response).startswith(_MESSAGES)

    def _record_break(self, request: httpx2.Request, error: httpx2.RequestError) -> None:
        """Record that the exchange of a request failed. A refusal that arrived before that says more."""
        number = _request_id(request)
        if number is None or number in self._failures:
            return
        if isinstance(error, TokenUnavailable):
            self._failures[number] = BrokenExchange(str(error), True, error.error)
            return
        is_unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        cause = f"{type(error).__name__}: {_cause(error, request) or 'no further detail'}"
        self._failures[number] = BrokenExchange(cause, is_unsent)


async def _read_words(response: httpx2.Response) -> None:
    """Read the body of an HTTP error, as far as it comes in time; the SDK finds it read, or its stream consumed."""
    with anyio.move_on_after(WORDS_SECONDS), suppress(httpx2.HTTPError, httpx2.StreamError):
        await response.aread()


def refusal_in(response: httpx2.Response, redirects: Collection[str] = ()) -> HttpRefusal:
    """Return what a response says that is no answer in MCP. `redirects`: the addresses that led to it."""
    location = redirect_location(response)
    content_type = _content_type(response)
    words, lacks_scope, offers_login = challenge_in(response.headers)
    with suppress(httpx2.ResponseNotRead):
        words = words_in(content_type, response.content) or words
    return HttpRefusal(
        response.status_code,
        content_type,
        "" if location is None else str(location),
        retry_after(response.headers),
        response.request.url.netloc.decode(errors="replace"),
        loops=location is not None and str(location) in {_address(response.request), *redirects},
        lacks_scope=lacks_scope,
        offers_login=offers_login,
        login=response.request.extensions.get(LOGIN),
        key_error=response.request.extensions.get(KEY_ERROR),
        words=words,
    ).redacted(partial(hide, response.request.extensions.get(MASKS, ())))


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _address(request: httpx2.Request) -> str:
    """Return the URL of a request without its query."""
    return str(request.url.copy_with(userinfo=b"", query=None, fragment=None))


def _cause(error: httpx2.RequestError, request: httpx2.Request) -> str:
    # It may quote a header.
    cause = hide(request.extensions.get(MASKS, ()), str(error)).strip().rstrip(".")
    if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return cause
    cause = connection_failure(error) or cause or "no answer"
    return f"{cause} at {server_of(str(request.url))}; start that server or correct `url`"


def _request_id(request: httpx2.Request) -> int | str | None:
    """Return the id of the JSON-RPC request in an HTTP request, None for any other message."""
    message: JSON = orjson.loads(request.content)
    return message.get("id") if "method" in message else None


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


class _BreakableBody(httpx2.AsyncByteStream):
    """A response body that ends early when its connection breaks, which it reports to `on_break`."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, on_break: Callable[[httpx2.TransportError], None]
    ) -> None:
        self._inner = inner
        self._on_break = on_break

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx2.TransportError as error:
            self._on_break(error)

    async def aclose(self) -> None:
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
    noise_at = -math.inf
    pid = None

    def __init__(self, client: HttpClient, read_stream: Any, write_stream: Any) -> None:
        self._client = client
        self.resumption = McpSession(client)
        self.read_stream = read_stream
        self.write_stream = write_stream

    def is_unsent(self, number: int) -> bool:
        return False

    def take_failure(self, number: int) -> HttpRefusal | BrokenExchange | None:
        return self._client.take_failure(number)

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
async def open_http(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None = None
) -> AsyncGenerator[UpstreamTransport]:
    """Connect to a Streamable HTTP endpoint. Leaving the block ends the MCP session."""
    async with HttpClient(url, headers, auth=auth) as client, _open(url, client) as transport:
        yield transport


@asynccontextmanager
async def resume_http(
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None = None,
    *,
    session_id: str,
    version: str,
) -> AsyncGenerator[UpstreamTransport]:
    """Connect to a Streamable HTTP endpoint under the MCP session of an earlier process; see open_http().

    `version` is the protocol version of the session. Nothing is sent: the first request shows whether the server still
    knows the session. Only if it does, leaving the block ends the session.
    """
    async with (
        HttpClient(url, headers, session_id, auth=auth) as client,
        _open(url, client) as transport,
    ):
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
