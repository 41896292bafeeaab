"""One live connection to an upstream, as a session sees it.

Results are passed on as unchanged JSON. The questions, logs and progress reports that an upstream sends during a call reach
the caller of that call, for both protocol eras on either side.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import anyio
from anyio import to_thread
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)

from ...sessions.attribution import LAST_WORDS
from ...sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON, is_large
from ...sessions.services import CallContext, RestoreReport, Snapshot, ToolResult
from ..outputs import PASSED, OutputRules
from . import change_stream
from .calls import ActiveCalls, LogLevel, UpstreamCall
from .errors import UpstreamMisbehaved, UpstreamRefused, asks_by_older_era, with_era_remedy
from .known_secrets import Secrets
from .negotiation import EraPlan, EraUndecided, Peer, name_lacking_side, require_answerable
from .resource_updates import ResourceUpdates
from .results import (
    attribute_question,
    attribute_refusal,
    attribute_report,
    facts_of,
    next_round,
    validate_result,
)
from .resumption import UpstreamResumption
from .tasks import UpstreamTask, cancel_tasks
from .transports.base import OpenTransport
from .transports.http_errors import HttpRefused
from .transports.json_rpc import HandshakeFailed, JsonRpcConnection
from .transports.pipe_requests import QUESTION
from .transports.session_check import FORGOTTEN, OpenAnother, SessionCheck, find_refusal

logger = logging.getLogger("statehold.upstream")

MAX_ROUNDS: Final = 10
"""How often one call may ask for input, as in the SDKs."""

STATE_ONLY_SECONDS: Final = 0.1
"""Seconds before a request is repeated whose `input_required` answer contains no questions."""

ERROR_TEXT: Final = 2000
"""Characters of an error's text that are searched for its cause."""

QUESTIONS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")

CHANGES: Final = ("/list_changed", "/resources/updated")
"""The ends of the names of notifications of changes."""

HeaderBuilder = Callable[[str, Mapping[str, Any]], dict[str, str]]
"""Returns the `Mcp-Param-*` headers of a tool call over HTTP: tool, arguments."""

Saver = Callable[["UpstreamConnection"], Awaitable[Snapshot | None]]
"""Saves a connection by the recipe of its service."""

ChangeCallback = Callable[["UpstreamConnection", str, JSON], None]
"""Called with `notifications/.../list_changed` and `resources/updated`: connection, method, params. Must not block."""


class UpstreamConnection:
    """A connection to one upstream. It is open from the return of connect() until aclose() or until the upstream ends.

    Any number of tasks may call and close it concurrently. Calls have no time limit; callers cancel them.
    """

    def __init__(
        self,
        service: str,
        *,
        shared: bool = False,
        open_another: OpenAnother | None = None,
        param_headers: HeaderBuilder | None = None,
        on_changed: ChangeCallback | None = None,
        on_older_question: Callable[[UpstreamConnection], str] | None = None,
        saver: Saver | None = None,
        asking_tools: set[str] | None = None,
        rules: OutputRules = PASSED,
        explain: Callable[[str], str | None] = lambda text: None,
    ) -> None:
        """`asking_tools` are the tools that have asked on other connections; `explain` returns our note about an error."""
        self.service = service
        self.restore_report = RestoreReport()
        self.owner = ""
        """The principal of its session; empty: the operator, or nobody alone."""
        self.lost = anyio.Event()
        self.reason: str | None = None
        self.busy: str | None = None
        self.unsaved = True
        self.stray_output = ""
        self.session_id: str | None = None
        """The session that it belongs to, None for a shared connection."""
        self._open_another = open_another
        self._param_headers = param_headers
        self.on_changed = on_changed
        self._on_older_question = on_older_question
        self._saver = saver
        self._explain = explain
        self._resource_updates = ResourceUpdates(
            service, self._request, self._send_subscription, self._report_change
        )
        self._calls = ActiveCalls(set() if asking_tools is None else asking_tools, shared=shared)
        self._log_level = LogLevel()
        self._first_number = 0
        self._rpc: JsonRpcConnection | None = None
        self._listener: change_stream.Listener | None = None
        self._quiet_lists = change_stream.QuietLists(None)
        self._had_calls = False
        self._is_closed = False
        self._session_check = SessionCheck(service)
        self._tasks = set[UpstreamTask]()
        self._rules = rules
        self._validate = partial(validate_result, service=service, rules=rules)

    def __repr__(self) -> str:
        return f"<UpstreamConnection {self.service!r} calls={len(self._calls)}>"

    async def connect(
        self,
        open_transport: Callable[[], OpenTransport],
        *,
        plan: EraPlan,
        seconds: float,
        secrets: Secrets,
        remedy: str = "",
    ) -> None:
        """Connect in the era that a plan finds. An upstream that ends during the first attempt is started again.

        `remedy` is appended to the error of a timeout, unless the upstream wrote text to stdout that is not MCP.

        Raises:
            ServiceUnavailable: No era worked in time; nothing is left behind.
        """
        first_failure: HandshakeFailed | None = None
        next_plan: EraPlan | None = plan
        with anyio.move_on_after(seconds):
            while next_plan is not None:
                self._rpc = JsonRpcConnection(
                    open_transport, self, service=self.service, secrets=secrets
                )
                try:
                    await self._rpc.open(next_plan, seconds=seconds)
                    return
                except HandshakeFailed as error:
                    first_failure = first_failure or error
                    next_plan = next_plan.after(error)
                except EraUndecided as error:
                    next_plan = next_plan.after(error)
            assert first_failure is not None
            raise first_failure
        noise = self._rpc.noise() if self._rpc is not None else ""
        output = self._rpc.last_output() if self._rpc is not None else ""
        if noise:
            # Without stderr, the last output is this text.
            output = (
                noise if output.removeprefix("it last said: ") in noise else f"{noise}; {output}"
            )
            remedy, output = "", f"it wrote text to stdout that is not MCP{LAST_WORDS}{output}"
        raise ServiceUnavailable(
            f"{self.service} did not answer within {seconds:g} seconds{'; ' if output else ''}{output}{remedy}."
        )

    async def resume(
        self,
        open_transport: Callable[[], OpenTransport],
        *,
        peer: Peer,
        first_number: int,
        secrets: Secrets,
    ) -> None:
        """Resume a connection on which an earlier process did the handshake with `peer`.

        `first_number` is larger than the id of any request that was sent over it. A failed or cancelled call leaves nothing
        behind.

        Raises:
            ConnectionLost: It is gone.
            ServiceUnavailable: The upstream does not answer, so that it may still have the connection.
        """
        self._rpc = JsonRpcConnection(
            open_transport, self, service=self.service, secrets=secrets, first_number=first_number
        )
        self._had_calls, self._first_number = True, first_number
        try:
            await self._rpc.open(peer)
            if self._rpc.transport.has_session:
                await self._confirm_session()
        except BaseException:
            await self.aclose()
            raise

    async def _confirm_session(self) -> None:
        """Ask the upstream whether it still knows the session. Raises like resume()."""
        assert self._open_another is not None
        try:
            refusal = await find_refusal(self.rpc, self._open_another)
        except SessionError as error:
            raise ServiceUnavailable(
                f"{self.service} could not be resumed: {error.message}"
            ) from error
        if refusal is not None:
            raise ConnectionLost(FORGOTTEN)

    @property
    def resumption(self) -> UpstreamResumption | None:
        """How it outlives this process; None if its other end does not. Read once it is open."""
        transport = self.rpc.transport.resumption
        if transport is None:
            return None
        return UpstreamResumption(self.rpc, transport, self._calls, self._tasks, self._finish)

    async def aclose(self) -> None:
        """Close within a bound. Requests in flight fail with OutcomeUnknown, and tasks of the upstream are cancelled."""
        self._is_closed = True
        if self._tasks:
            await cancel_tasks(self._tasks)
        if self._rpc is not None:
            await self._rpc.aclose()

    @property
    def is_open(self) -> bool:
        """True until it is closed or lost."""
        return not self._is_closed and not self.lost.is_set()

    async def snapshot(self) -> Snapshot | None:
        return None if self._saver is None else await self._saver(self)

    async def checkpoint(self) -> Snapshot | None:
        return await self.snapshot()

    @property
    def rpc(self) -> JsonRpcConnection:
        assert self._rpc is not None, "the connection was never opened"
        return self._rpc

    @property
    def peer(self) -> Peer:
        return self.rpc.peer

    def quote(self, words: str) -> str:
        """Return words of the server as one line without secrets, of bounded length."""
        return self.rpc.quote(words)

    @property
    def pids(self) -> list[int]:
        """See ProcessBacked in sessions/services.py."""
        return [] if self._rpc is None or self._rpc.pid is None else [self._rpc.pid]

    def stderr_tail(self) -> str:
        """Return the last lines of the server's stderr, without secrets, also after its end; empty if it is remote."""
        return "" if self._rpc is None else self._rpc.stderr_tail()

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        """Run one tool.

        Raises:
            OutcomeUnknown, ConnectionLost: See Connection.call() in sessions/services.py.
            UpstreamRefused: The upstream answered with a JSON-RPC error.
            HttpRefused: It answered with an HTTP error.
            UpstreamMisbehaved: The answer is not a tool result.
            NotAllowed: The tool asks for input that this caller cannot give.
        """
        self._had_calls = True
        params: JSON = {"name": tool, "arguments": dict(arguments)}
        result = ToolResult(await self._request("tools/call", params, ctx))
        if (due := self._quiet_lists.due_at) is not None and anyio.current_time() >= due:
            self._quiet_lists.report(self._report_change)
        if ctx.wants_facts:
            result.facts = facts_of(result.payload)
        return result

    async def request(self, method: str, params: JSON, ctx: CallContext) -> JSON:
        """Send one request other than tools/call and return its result. Raises like call()."""
        uri: object = params.get("uri")
        if method == "resources/subscribe" and isinstance(uri, str):
            return await self._resource_updates.subscribe(self.rpc, uri, ctx)
        if method == "resources/unsubscribe" and isinstance(uri, str):
            return await self._resource_updates.unsubscribe(self.rpc, uri, ctx)
        return await self._request(method, dict(params), ctx)

    def follow(self, followed_uris: dict[str, set[str]], session_id: str) -> None:
        """Subscribe to the resources of a session; see ResourceUpdates.follow()."""
        self._resource_updates.follow(self.rpc, followed_uris, session_id)

    async def _request(self, method: str, params: JSON, ctx: CallContext) -> JSON:
        """Send a request, and repeat it with the caller's answers while its result asks for input."""
        rpc, options = self.rpc, ctx.options
        peer, began_at = rpc.peer, anyio.current_time()
        modern, tool = peer.modern, method == "tools/call"
        call = UpstreamCall(next(rpc.numbers), params["name"] if tool else method, ctx, rpc.spawn)
        try:
            await self._calls.enter(call)
            if options.log_level is not None and not modern:
                await self._lower_log_level(options.log_level)
            if modern and (
                options.input_responses is not None or options.request_state is not None
            ):
                params = next_round(params, options.input_responses, options.request_state)
            for _ in range(MAX_ROUNDS + 1):
                answer = await rpc.request(
                    method,
                    call.with_meta(params, peer),
                    number=call.number,
                    headers=self._headers(method, params) if rpc.http else None,
                    operation_id=ctx.operation_id,
                )
                if is_large(answer) or (tool and answer.get("resultType") == "task"):
                    result = await self._finish(answer, call, tool=tool)
                else:
                    result = self._validate(answer, modern=modern, tool=tool, exact=options.exact)
                if (
                    result.get("resultType") != "input_required"
                    or options.can_return_input_required
                ):
                    if "inputRequests" in result:
                        require_answerable(result, ctx.capabilities)
                    await call.flush()
                    if result.get("isError") is True:
                        await self._session_check.check_result(result, rpc, self._open_another)
                        if tool:
                            self._add_note(result)
                    return result
                responses = await self._collect_answers(result, ctx)
                params = next_round(params, responses, result.get("requestState"))
            raise UpstreamMisbehaved(
                self.service, f"it asked for input more than {MAX_ROUNDS} times"
            )
        except anyio.get_cancelled_exc_class():
            self.stray_output = rpc.noise() if rpc.transport.noise_at >= began_at else ""
            raise
        except (ConnectionLost, OutcomeUnknown):
            await self._session_check.check_after_silence(rpc, self._open_another)
            raise
        except (UpstreamRefused, HttpRefused, UpstreamMisbehaved) as error:
            if isinstance(error, UpstreamRefused):
                texts = [error.message, error.data]
                if is_large(texts):
                    await to_thread.run_sync(attribute_refusal, error, self.service)
                else:
                    attribute_refusal(error, self.service)
                error = self._with_remedy(error, ctx)
            raise await self._session_check.explain(error, rpc, self._open_another) from error
        finally:
            self._calls.leave(call)

    def _with_remedy(self, error: UpstreamRefused, ctx: CallContext) -> UpstreamRefused:
        """Return an error of the upstream with our advice, if we know one."""
        if error.rpc_code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            return name_lacking_side(error, self.peer, ctx.capabilities, self.service)
        if note := self._note_on(error.message):
            return error.with_message(f"{error.message} {note}")
        return error if self.peer.modern else with_era_remedy(self.service, error)

    def _add_note(self, result: JSON) -> None:
        texts = (str(block.get("text", ""))[:ERROR_TEXT] for block in result["content"])
        if note := next(filter(None, map(self._note_on, texts)), None):
            result["content"].append({"type": "text", "text": note})

    def _note_on(self, text: str) -> str | None:
        """Return our note about an error: the tool could not ask in the modern era, or its sandbox refused something."""
        if self.peer.modern and not self.rpc.http and asks_by_older_era(text):
            return self._on_older_question and self._on_older_question(self)
        return self._explain(text)

    async def _finish(self, answer: JSON, call: UpstreamCall, *, tool: bool = True) -> JSON:
        """Return the result of a request by its answer, which may be large or a task."""
        modern, exact = self.peer.modern, call.ctx.options.exact
        validate = partial(self._validate, modern=modern, tool=tool, exact=exact)
        if tool and modern and answer.get("resultType") == "task":
            task = UpstreamTask(self.rpc, self.service, call, self._tasks, validate)
            answer = await task.follow(answer)
        return await to_thread.run_sync(validate, answer)

    def _headers(self, method: str, params: JSON) -> dict[str, str]:
        headers = self.peer.headers(method, params)
        if self.peer.modern and method == "tools/call" and self._param_headers is not None:
            headers |= self._param_headers(params["name"], params["arguments"])
        return headers

    async def _collect_answers(self, result: JSON, ctx: CallContext) -> JSON | None:
        requests: JSON = result.get("inputRequests") or {}
        if not requests:
            await anyio.sleep(STATE_ONLY_SECONDS)
            return None
        return {
            key: await ctx.ask(request["method"], request.get("params") or {})
            for key, request in requests.items()
        }

    async def _lower_log_level(self, caller_level: str) -> None:
        """Lower the log level of a legacy upstream if this caller wants more; each caller still gets only its own level."""
        level = self._log_level.lower(caller_level)
        if level is None or "logging" not in self.peer.capabilities:
            return
        try:
            headers = self.peer.headers("logging/setLevel", {}) if self.rpc.http else None
            await self.rpc.request(
                "logging/setLevel", {"level": level}, number=next(self.rpc.numbers), headers=headers
            )
        except SessionError as error:
            # If the connection is lost, the call finds that out.
            logger.debug("%s did not set its log level: %s", self.service, error)

    def listen(self, turn: anyio.Lock | None = None) -> None:
        """Subscribe to list changes for the lifetime of the connection, if the upstream needs a subscription for them.

        Connections that would receive the same notifications share the lock `turn`, so that only one listens at a time.
        """
        self._quiet_lists = change_stream.QuietLists(self.peer)
        filters = change_stream.list_change_filter(self.peer)
        if filters and self._listener is None:
            self._listener = change_stream.Listener(
                self.service, filters, self._send_subscription, self._report_change
            )
            # An empty context, so that the opener's token and trace do not live as long as the connection.
            self.rpc.spawn(contextvars.Context(), partial(self._listener.run, turn))

    def report_missed_changes(self) -> None:
        """Report a change of each list that may have changed while no process was connected."""
        for kind in change_stream.changing_lists(self.peer):
            self._report_change(f"notifications/{kind}/list_changed")

    async def _send_subscription(self, filters: JSON) -> None:
        rpc, method = self.rpc, change_stream.LISTEN
        params: JSON = {"notifications": filters, "_meta": self.peer.meta({})}
        headers = self.peer.headers(method, params) if rpc.http else None
        await rpc.listen(method, params, number=next(rpc.numbers), headers=headers)

    def _report_change(self, method: str) -> None:
        if self.on_changed is not None:
            self.on_changed(self, method, {})

    async def on_request(self, method: str, params: JSON, number: int | None) -> JSON:
        """Pass a question of the upstream on to the caller of the call that it belongs to, and return the answer."""
        if method == "ping":
            return {}
        if method not in QUESTIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        if method == "roots/list" and not len(self._calls):
            # Servers request the roots right after initialization, when there is no caller yet.
            return {"roots": []}
        try:
            attribute_question(self.service, method, params, self._rules)
            return await self._calls.ask(method, params, number, self._note_asker)
        except SessionError as error:
            raise MCPError(INVALID_REQUEST, error.message) from error
        except MCPError:
            raise
        except Exception as error:
            logger.exception("a question of %s could not be passed on to the caller", self.service)
            raise MCPError(
                INTERNAL_ERROR, "The question could not be passed on to the caller"
            ) from error

    def _note_asker(self, call: UpstreamCall) -> None:
        question, resumption = QUESTION.get(), self.rpc.transport.resumption
        if None not in (question, call.ctx.operation_id) and resumption is not None:
            resumption.record_asker(cast("int | str", question), call.number)

    def on_lost(self, reason: str) -> None:
        self.reason = reason
        self.lost.set()

    def on_notify(self, method: str, params: JSON, number: int | None) -> None:
        attribute_report(self.service, params)
        if method == "notifications/progress":
            if (call := self._calls.get(params.get("progressToken"))) is not None:
                call.progress(params)
        elif method == "notifications/message":
            self._calls.log(params, number, names_calls=self.rpc.http)
        elif method == change_stream.ACKNOWLEDGED:
            filters: JSON = params.get("notifications") or {}
            for uri in filters.get("resourceSubscriptions") or ():
                self._resource_updates.handle_acknowledgement(uri)
            if self._listener is not None and "resourceSubscriptions" not in filters:
                self._listener.handle_acknowledgement(params, late=self._had_calls)
        elif self.on_changed is not None and method.endswith(CHANGES):
            number = change_stream.subscription_number(params)
            if number is not None and number < self._first_number:
                # An earlier process made this subscription; the connection has its own.
                end = partial(self.rpc.notify, "notifications/cancelled", {"requestId": number})
                self.rpc.spawn(contextvars.Context(), end)
            self.on_changed(self, method, params)
