"""HTTP+SSE as a transport.

It replaces the SDK's sse_client (2.3), in which an event above 1 MiB ends the connection and the caller of a refused
message waits for ever.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import cast

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest

from ...processes.decoding import decode
from ...processes.framing import ClosingStream, encode
from ..sdk import request_within_origin, sse_within_origin
from .base import UpstreamTransport
from .http import RESULT_BYTES, HttpClient, refusal_in
from .http_errors import REFUSED, BrokenExchange, HttpRefusal, NoConnection

Received = SessionMessage | Exception


class SseTransport(ClosingStream):
    """The event stream of a server as the read stream, and one POST per message as the write stream."""

    http = False
    noise_at = -math.inf
    pid = None
    has_session = True
    resumption = None

    def __init__(
        self,
        client: HttpClient,
        endpoint: httpx2.URL,
        answers: MemoryObjectSendStream[Received],
        read_stream: MemoryObjectReceiveStream[Received],
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._answers = answers
        self.end = "the server ended its event stream"
        self.read_stream = read_stream
        self.write_stream = self

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        response = await request_within_origin(
            self._client,
            "POST",
            self._endpoint,
            content=encode(message),
            headers={"content-type": "application/json"},
        )
        if not response.is_success and isinstance(message, JSONRPCRequest):
            # A refused request fails alone.
            refusal = ErrorData(code=INTERNAL_ERROR, message=REFUSED)
            answer = JSONRPCError(jsonrpc="2.0", id=message.id, error=refusal)
            await self._answers.send(SessionMessage(answer))

    async def aclose(self) -> None:
        return

    def is_unsent(self, number: int) -> bool:
        return False

    def take_failure(self, number: int) -> HttpRefusal | BrokenExchange | None:
        return self._client.take_failure(number)

    def last_output(self) -> str:
        return ""

    def noise(self) -> str:
        return ""

    async def describe_end(self) -> tuple[str, str]:
        return self.end, ""


@asynccontextmanager
async def open_sse(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None = None
) -> AsyncGenerator[UpstreamTransport]:
    """Connect to an HTTP+SSE endpoint. A later failure ends the read stream and cancels no task.

    Raises:
        NoConnection: The response is no event stream.
        httpx2.HTTPError: There is no response, or its stream names no address for messages.
    """
    async with (
        HttpClient(url, headers, auth=auth, answers_in_stream=True) as client,
        sse_within_origin(client, url, max_event_size=RESULT_BYTES) as source,
    ):
        refusal = refusal_in(source.response)
        if not source.response.is_success or refusal.content_type != "text/event-stream":
            raise NoConnection(refusal)
        sending, receiving = anyio.create_memory_object_stream[Received](0)
        async with (
            # Close the generator before the response that it reads.
            aclosing(cast(AsyncGenerator[httpx2.ServerSentEvent], aiter(source))) as events,
            sending,
            receiving,
            anyio.create_task_group() as tasks,
        ):
            # Redirects within its origin were followed.
            endpoint = await _endpoint(events, source.response.url)
            transport = SseTransport(client, endpoint, sending, receiving)
            tasks.start_soon(_relay, events, transport, sending)
            yield transport
            tasks.cancel_scope.cancel()


async def _endpoint(events: AsyncGenerator[httpx2.ServerSentEvent], url: httpx2.URL) -> httpx2.URL:
    """Wait for the event that names the address for messages. It must be on the same server."""
    async for event in events:
        if event.event == "endpoint":
            endpoint = url.join(event.data)
            if endpoint.origin != url.origin:
                raise httpx2.RemoteProtocolError("the server names an endpoint of another server")
            return endpoint
    raise httpx2.RemoteProtocolError("the server ended its event stream without an endpoint")


async def _relay(
    events: AsyncGenerator[httpx2.ServerSentEvent],
    transport: SseTransport,
    sending: MemoryObjectSendStream[Received],
) -> None:
    try:
        async for event in events:
            if event.event == "message" and event.data:
                message = decode(event.data.encode("utf-8", "replace"))
                if message is not None:
                    await sending.send(SessionMessage(message))
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        transport.end = f"the event stream failed ({type(error).__name__}: {error})"
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass  # send() failed, or the reader closed its stream.
    finally:
        sending.close()
