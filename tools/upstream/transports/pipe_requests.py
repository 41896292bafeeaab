"""Requests over a pipe that bypass the SDK's dispatcher, which takes longer per request than the pipe.

Not used with OpenTelemetry, for which the dispatcher creates the spans.

The dispatcher still reads the pipe and handles everything else. The answers to requests of this module are removed from its
stream in the order of arrival, so that notifications keep their place before the answers that follow them.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import orjson
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from ....sessions.json_codec import JSON
from ...processes.decoding import decode
from ...processes.framing import MessageStream, StdoutReader
from .base import EarlierTraffic
from .http_errors import NO_ANSWER

if TYPE_CHECKING:
    from ..sdk import ReadStream, WriteStream

_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)
CANCEL_SECONDS: Final = 5.0
"""Seconds that sending a cancellation may take, as in the SDK."""

CAUSE: Final = contextvars.ContextVar[int | None]("cause", default=None)
"""The id of a request, in the context of everything that its HTTP response brings."""


QUESTION: Final = contextvars.ContextVar[int | str | None]("question", default=None)
"""The id of a request of the server, in the context that answers it."""

SOLE_ANSWER: Final = contextvars.ContextVar[bytes | None]("sole_answer", default=None)
"""The content of an HTTP request, in the context of the one message that its response brings."""


AnswerQuestion = Callable[[str, JSON, int | None], Awaitable[JSON]]
"""Answers a question of the server, or raises MCPError; see Handler.on_request()."""


class PipeRequests:
    """The requests in flight over one pipe. It lives as long as its JsonRpcConnection; close() fails waiting requests."""

    def __init__(self, write: WriteStream[SessionMessage]) -> None:
        self._write = write
        self._waiting: dict[int, asyncio.Future[JSON]] = {}
        self._questions: list[tuple[JSONRPCRequest, int | None]] = []
        """The open questions of an earlier process, with the ids of the requests of the calls that asked."""
        self._is_closed = False

    async def send(self, method: str, params: JSON, number: int) -> JSON:
        """Send a request and return its result. Cancelling it cancels it upstream.

        Raises:
            MCPError: The server answered with an error, or the connection is closed.
        """
        if self._is_closed:
            raise _closed()
        message = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params or None)
        await anyio.lowlevel.checkpoint_if_cancelled()
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            try:
                await self._write.send(SessionMessage(message))
            except _BROKEN:
                raise _closed() from None
            del message  # since the answer may take hours
            return await answer
        except anyio.get_cancelled_exc_class():
            await self.cancel(number)
            raise
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # otherwise the loop would report it as never retrieved

    def settle(self, traffic: EarlierTraffic) -> None:
        """Expect the answers to the calls of an earlier process, and keep its open questions for take_questions()."""
        for number in traffic.calls:
            self.expect(number)
        for line in traffic.lines:
            message = decode(line)
            if isinstance(message, JSONRPCRequest):
                if message.id not in traffic.answered:
                    self._questions.append((message, traffic.askers.get(message.id)))
            elif message is not None:
                self.take(SessionMessage(message))

    async def expected(self, number: int) -> JSON:
        """Wait for the answer to a request that an earlier process sent. Cancelling it cancels the request upstream.

        Raises:
            MCPError: The server answered with an error, or the connection is closed.
        """
        try:
            return await self._waiting[number]
        except anyio.get_cancelled_exc_class():
            if not self._is_closed:
                await self.cancel(number)
            raise

    def take_questions(self, ask: AnswerQuestion) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield once a function for each open question of an earlier process, which asks it and sends the answer."""
        questions, self._questions = self._questions, []
        for question, asker in questions:
            yield partial(self._put, question, asker, ask)

    async def _put(self, question: JSONRPCRequest, asker: int | None, ask: AnswerQuestion) -> None:
        response = withdraw(question)
        if asker is not None:
            with suppress(MCPError):
                result = await ask(question.method, question.params or {}, asker)
                response = JSONRPCResponse(jsonrpc="2.0", id=question.id, result=result)
        with suppress(*_BROKEN):
            await self._write.send(SessionMessage(response))

    def expect(self, number: int) -> None:
        """Expect the answer to a request that an earlier process sent. It fails when the connection ends."""
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_record_retrieved)

    async def cancel(self, number: int) -> None:
        """Cancel a request upstream. It needs a limited time also within a cancelled scope."""
        params = {"requestId": number, "reason": "caller cancelled"}
        message = JSONRPCNotification(
            jsonrpc="2.0", method="notifications/cancelled", params=params
        )
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            try:
                await self._write.send(SessionMessage(message))
            except _BROKEN:
                return

    def take(self, item: SessionMessage | Exception) -> bool:
        """Deliver an answer to a request of this module. Return False for any other message."""
        if isinstance(item, Exception):
            return False
        message = item.message
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return False
        number = number_of(message.id)
        if isinstance(message, JSONRPCResponse):
            return self.take_result(number, message.result)
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            answer.set_exception(MCPError.from_error_data(message.error))
        return answer is not None

    def take_result(self, number: int, result: JSON) -> bool:
        """Deliver the result of a request of this module. Return False for any other request."""
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            answer.set_result(result)
        return answer is not None

    def close(self) -> None:
        """Fail all waiting requests, because the connection has ended."""
        self._is_closed = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_closed())


class EndWatchingStream(MessageStream):
    """A read stream that calls `on_end` when it ends, before the dispatcher fails the waiting requests.

    It hands the answers to requests of PipeRequests over to them, in the order of arrival. `last_context` is the context in
    which the last message was sent, for transports of the SDK that know it. The sole message of an HTTP response answers
    the request of that response; another one fails it, because no answer can follow.
    """

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        pipe_requests: PipeRequests | None,
        on_end: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._pipe_requests = pipe_requests
        self._on_end = on_end
        if pipe_requests is not None and isinstance(inner, StdoutReader):
            inner.take_result = pipe_requests.take_result

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await self._inner.receive()
            while self._pipe_requests is not None and self._pipe_requests.take(item):
                item = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise
        context = self.last_context
        request = None if context is None else context.get(SOLE_ANSWER)
        # Reading the request takes as long as it is large.
        if request is None or isinstance(item, Exception) or _answers(item) == self.last_cause:
            return item
        return _answer_to(request, item)

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._inner, "last_context", None)

    @property
    def last_cause(self) -> int | None:
        """The id of the request whose HTTP response brought the last message; None if its transport does not tell."""
        context = self.last_context
        return None if context is None else context.get(CAUSE)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _answers(item: SessionMessage) -> int:
    """Return the number of the request that a message answers, -1 if it answers none."""
    message = item.message
    return number_of(message.id) if isinstance(message, JSONRPCResponse | JSONRPCError) else -1


def _answer_to(request: bytes, item: SessionMessage) -> SessionMessage:
    """Return the only message of the response to `request` if it answers it, else an error that does."""
    message, number = item.message, orjson.loads(request)["id"]
    if _answers(item) == number:
        return item
    error = ErrorData(code=PARSE_ERROR, message=NO_ANSWER)
    if isinstance(message, JSONRPCError) and message.id is None:
        # The server could not read the id, or refused the request before that.
        error = message.error
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


def _record_retrieved(answer: asyncio.Future[JSON]) -> None:
    # Otherwise the loop would report its exception as never retrieved.
    if not answer.cancelled():
        answer.exception()


def number_of(answer_id: str | int | None) -> int:
    """Return the request number in the id of an answer, -1 if it has none. Some servers return the id as text."""
    if isinstance(answer_id, int):
        return answer_id
    return (
        int(answer_id)
        if answer_id is not None and answer_id.isascii() and answer_id.isdigit()
        else -1
    )


def _closed() -> MCPError:
    return MCPError(code=CONNECTION_CLOSED, message="Connection closed")


def withdraw(question: JSONRPCRequest) -> JSONRPCResponse | JSONRPCError:
    """Return the answer to a question whose caller was lost with the process that passed it on."""
    if question.method == "elicitation/create":
        return JSONRPCResponse(jsonrpc="2.0", id=question.id, result={"action": "cancel"})
    error = ErrorData(code=INVALID_REQUEST, message="The question was withdrawn.")
    return JSONRPCError(jsonrpc="2.0", id=question.id, error=error)
