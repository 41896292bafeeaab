"""Requests over a transport, with retries and backoff, until an answer or an error.

A request whose connection broke is sent again only if that cannot run a call twice: it was never sent, it only reads, it is
idempotent, or it carries an operation id. The server runs a call with an operation id once and answers repetitions with the
recorded result.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast

import anyio

from ..errors import (
    CallTimedOut,
    NotAllowed,
    OutcomeUnknown,
    RequestRefused,
    ServerUnreachable,
    SessionError,
    StateConflict,
    error_of_result,
)
from ..results import ERROR_META, INSTANCE_META, SERVICE_META, object_of
from ..transport.base import (
    HEADER_MISMATCH,
    VERSION,
    AccessDenied,
    JsonRpcError,
    ProgressCallback,
    Transport,
    TransportBroken,
)

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON
    from .elicitation import ElicitationCallback

META: Final = "io.modelcontextprotocol/"
TASKS: Final = f"{META}tasks"
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
START_SECONDS: Final = 10.0
"""Seconds that a new client waits for a server that may be starting."""

Repeat: TypeAlias = Literal["always", "operation", "never"]
"""Whether a request that may have been sent is sent again: always (it is harmless), with its operation id, or never."""

REPEATED: Final = "statehold/operation_repeated"
_RETRYABLE: Final = frozenset(
    {"session_busy", "login_busy", "service_unavailable", "connection_lost"}
)
_SILENT_ABOUT_OUTCOME: Final = frozenset(
    {
        *("session_not_found", "session_expired", "session_closed", "session_paused"),
        *("session_failed", "session_limit", "service_not_bound", "not_allowed"),
        "login_unavailable",
    }
)
"""Errors of a repeated call that the server raises before it checks whether the call had run."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The time limit of retries in seconds, and the largest random part taken off each pause."""

    seconds: float = 60.0
    spread: float = 0.3

    def pause(self, attempt: int) -> float:
        whole = min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)
        return whole * (1 - self.spread * random.random())


@dataclass(frozen=True, slots=True)
class RepeatableRequest:
    """One request, which may be sent several times."""

    method: str
    params: JSON
    repeat: Repeat = "always"
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    progress_callback: ProgressCallback | None = None
    retry: bool = True
    """Whether to wait for a server that cannot be reached."""
    longest_wait: float = math.inf
    """The longest such wait in seconds, within that of the policy."""

    @property
    def name(self) -> str:
        """The name of its tool, or its method, for errors."""
        return str(self.params.get("name", self.method))


class RetryingRequests:
    """Sends requests to one server. It lives as long as the client; any task may use it."""

    def __init__(
        self,
        transport: Transport,
        *,
        policy: RetryPolicy,
        elicitation_callback: ElicitationCallback | None,
    ) -> None:
        self.transport = transport
        self._policy = policy
        self.elicitation_callback = elicitation_callback
        self._headers: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._closed = anyio.Event()
        self.instance: str | None = None
        """The process that answered last, if it gave its name. It remembers the ids sent to it; another process does not."""
        capabilities: JSON = (
            {} if elicitation_callback is None else {"elicitation": {"form": {}, "url": {}}}
        )
        extensions: JSON = {"extensions": {TASKS: {}}}
        self.tasks_meta: Final[JSON] = {f"{META}clientCapabilities": {**capabilities, **extensions}}
        """The `_meta` with which a request declares tasks (SEP-2663)."""
        self._client_meta: JSON = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientInfo": {"name": "statehold-client", "version": version("statehold")},
            f"{META}clientCapabilities": capabilities,
        }

    def new_operation_id(self) -> str | None:
        """Return a new operation id; None if the transport cannot lose answers."""
        return secrets.token_hex(16) if self.transport.breaks else None

    def close(self) -> None:
        """Stop all retries; requests that wait for the server to come back fail."""
        self._closed.set()

    async def check_server(self) -> None:
        """Check that the server is a Statehold: another server would run a repeated call twice.

        A server that does not answer yet is waited for, START_SECONDS at most.

        Raises:
            ServerUnreachable: no server answers, or it is no Statehold.
        """
        try:
            answer = await self.request("server/discover", {}, longest_wait=START_SECONDS)
        except RequestRefused as refusal:
            raise ServerUnreachable(f"This is no Statehold: {refusal.message}.") from None
        self.record_instance(answer)
        server: JSON = object_of(object_of(answer.get("_meta")).get(f"{META}serverInfo"))
        if server.get("name") != "statehold" or VERSION not in answer.get("supportedVersions", ()):
            name = str(server.get("name") or "it has no name")
            raise ServerUnreachable(
                f"This is no Statehold of revision {VERSION}: {name[:128]}.",
                recovery="Give the address of a Statehold, or configure this server as a service of one.",
            )

    def record_instance(self, result: JSON) -> None:
        """Record the name of the process that answered."""
        self.instance = object_of(result.get("_meta")).get(INSTANCE_META, self.instance)

    async def request(
        self,
        method: str,
        params: JSON,
        *,
        meta: Mapping[str, Any] | None = None,
        longest_wait: float = math.inf,
    ) -> JSON:
        """Send a request that only reads, or may be repeated.

        Raises:
            ServerUnreachable: no answer came within the time limit of retries.
            RequestRefused: it was answered with a JSON-RPC error.
        """
        return await self._send_until_answered(
            RepeatableRequest(method, params, meta=meta or {}, longest_wait=longest_wait)
        )

    async def call(
        self,
        tool: str,
        arguments: JSON,
        *,
        repeat: Repeat,
        meta: Mapping[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: ProgressCallback | None = None,
        retry: bool = True,
    ) -> JSON:
        """Call a tool and return its result, an error of the tool too.

        Raises:
            OutcomeUnknown: the connection broke, and it is unknown whether the call ran.
            ServerUnreachable: it was not sent.
            CallTimedOut: after `read_timeout_seconds`; it was cancelled.
        """
        request = RepeatableRequest(
            "tools/call",
            {"name": tool, "arguments": arguments},
            repeat,
            meta or {},
            progress_callback,
            retry,
        )
        if read_timeout_seconds is None:
            return await self._send_until_answered(request)
        with anyio.move_on_after(read_timeout_seconds):
            return await self._send_until_answered(request)
        raise CallTimedOut(
            f"{tool} took longer than {read_timeout_seconds:g} seconds and was cancelled."
        )

    async def _send_until_answered(self, request: RepeatableRequest) -> JSON:
        try:
            return await self._send_with_answers(request, request.meta)
        except TransportBroken as error:
            failure = error
        return await self._send_again(request, failure)

    async def _send_again(self, request: RepeatableRequest, failure: TransportBroken) -> JSON:
        may_have_run = failure.sent
        retry = request.retry and self.transport.breaks
        seconds = min(self._policy.seconds, request.longest_wait) if retry else 0
        deadline = anyio.current_time() + seconds
        attempt = 0
        while True:
            if may_have_run and request.repeat == "never":
                _raise_outcome_unknown(request.name, failure.cause, failure)
            pause = self._policy.pause(attempt)
            if anyio.current_time() + pause > deadline:
                break
            with anyio.move_on_after(pause):
                await self._closed.wait()
            if self._closed.is_set():
                break
            attempt += 1
            meta = {**request.meta, REPEATED: True} if may_have_run else request.meta
            try:
                result = await self._send_with_answers(request, meta)
            except TransportBroken as error:
                failure = error
                may_have_run = may_have_run or error.sent
                continue
            except NotAllowed as refusal:
                if may_have_run and request.repeat != "always":
                    _raise_outcome_unknown(request.name, refusal.message, refusal)
                raise
            error = (
                _error_if_any(result) if may_have_run and request.repeat == "operation" else None
            )
            if error is None or not (error.code in _SILENT_ABOUT_OUTCOME or _is_retryable(error)):
                return result
            if error.code not in _RETRYABLE:
                _raise_outcome_unknown(request.name, error.message, error)
            failure = TransportBroken(error.message, sent=True)
        if may_have_run and request.repeat != "always":
            _raise_outcome_unknown(request.name, failure.cause, failure)
        raise ServerUnreachable(f"Statehold cannot be reached: {failure.cause}.") from None

    async def _send_with_answers(self, request: RepeatableRequest, meta: Mapping[str, Any]) -> JSON:
        """Send a request once, and answer the questions that the server asks meanwhile."""
        params: JSON = {**request.params, "_meta": {**self._client_meta, **meta}}
        result = await self._send(request, params)
        if result.get("resultType") != "input_required" or self.elicitation_callback is None:
            return result
        from .elicitation import ElicitationRound

        questions = ElicitationRound(self.elicitation_callback)
        while result.get("resultType") == "input_required":
            answers = await questions.answer_all(object_of(result.get("inputRequests")))
            # A new `_meta`: a transport adds the progress token to it.
            meta_again = {**self._client_meta, **meta}
            params = {**request.params, "_meta": meta_again, "inputResponses": answers}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
            result = await self._send(request, params)
        if questions.failure is not None:
            raise questions.failure
        return result

    async def _send(self, request: RepeatableRequest, params: JSON) -> JSON:
        """Send a request, once more if the server wants headers that repeat arguments."""
        try:
            return await self._send_once(request, params)
        except RequestRefused as refusal:
            if refusal.rpc_code != HEADER_MISMATCH or "name" not in params:
                raise
        await self._learn_headers(params["name"])
        return await self._send_once(request, params)

    async def _send_once(self, request: RepeatableRequest, params: JSON) -> JSON:
        headers = self._mirror_arguments(params) if self._headers else None
        try:
            result = await self.transport.request(
                request.method,
                params,
                headers=headers,
                progress_callback=request.progress_callback,
            )
        except JsonRpcError as error:
            self._require_next(error.data, error.message, params)
            raise RequestRefused(error.code, error.message, error.data) from None
        except AccessDenied as denied:
            raise NotAllowed(
                str(denied),
                recovery="Give connect() a `token=` that the server accepts; `statehold tokens add NAME` there makes one.",
            ) from None
        if result.get("isError") is True and (error := error_in(result)) is not None:
            self._require_next(
                object_of(result.get("_meta")).get(ERROR_META), error.message, params
            )
        return result

    def _require_next(self, details: object, message: str, params: JSON) -> None:
        """Raise TransportBroken if an error says that the next process takes the request, which this one did not begin."""
        if self.transport.breaks and object_of(details).get("next_process") is True:
            # A call that has asked questions did begin.
            raise TransportBroken(message.rstrip("."), sent="inputResponses" in params)

    def _mirror_arguments(self, params: JSON) -> dict[str, str] | None:
        """Return the headers that repeat some arguments; a proxy may route by them."""
        headers = self._headers.get(params.get("name", ""))
        if not headers:
            return None
        from mcp.shared.inbound import mcp_param_headers

        return mcp_param_headers(headers, object_of(params.get("arguments")))

    async def _learn_headers(self, tool: str) -> None:
        from mcp.shared.inbound import x_mcp_header_map

        for definition in await self.list_tools():
            self._headers[definition["name"]] = x_mcp_header_map(definition["inputSchema"])
        self._headers.setdefault(tool, {})

    async def list_tools(self) -> list[JSON]:
        """Return the definitions of all tools, with their services."""
        definitions: list[JSON] = []
        cursor: str | None = None
        while True:
            params: JSON = {} if cursor is None else {"cursor": cursor}
            page = await self._send_until_answered(
                RepeatableRequest("tools/list", params, meta={SERVICE_META: True})
            )
            definitions += page["tools"]
            cursor = page.get("nextCursor")
            if cursor is None:
                return definitions


def _is_retryable(error: SessionError) -> bool:
    # A conflict is an outcome of the call, whichever try got it.
    return error.retryable and not isinstance(error, StateConflict)


def _error_if_any(result: JSON) -> SessionError | None:
    return error_in(result) if result.get("isError") else None


def error_in(result: JSON) -> SessionError | None:
    """Return the session error that a result carries, None when the tool itself failed."""
    details: object = object_of(result.get("_meta")).get(ERROR_META)
    if not isinstance(details, dict):
        return None
    content: list[JSON] = result.get("content") or [{}]
    return error_of_result(cast("JSON", details), str(content[0].get("text", "")))


def _raise_outcome_unknown(call: str, cause: str, error: Exception) -> NoReturn:
    raise OutcomeUnknown(
        f"The connection to Statehold broke during {call}, which may have run: {cause}"
    ) from error


__all__ = ["Repeat", "RetryingRequests", "RetryPolicy", "error_in"]
