"""The non-public parts of the MCP SDK that Statehold uses: one test for each, with the locked version."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.shared.exceptions import NoBackChannelError
from support.asgi import AsgiRequest

from statehold.access.claims import VerifiedCaller
from statehold.server.sdk.access import (
    RequestContext,
    outbound_of,
)
from statehold.server.sdk.caller import connection_of, is_modern
from statehold.server.sdk.http_sessions import in_flight, open_transport
from statehold.sessions.records import Principal

Handler = Callable[[RequestContext], Awaitable[Any]]
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


def serving(handle: Handler) -> Server[Any]:
    """A server whose middleware answers tool calls with `handle`, as StateholdServer does."""

    async def middleware(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        return {"content": [], "structuredContent": await handle(ctx), "resultType": "complete"}

    async def listed(ctx: RequestContext, params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    server: Server[Any] = Server("seams", version="1", on_list_tools=listed)
    server.middleware.append(middleware)
    return server


async def called(server: Server[Any], mode: str, **options: Any) -> list[Any]:
    """Call the tool twice over one connection, and return the results of the handler."""
    async with Client(server, mode=mode, cache=None, **options) as client:
        results = [await client.session.call_tool("tool", {}) for _ in range(2)]
    return [result.structured_content for result in results]


@MODES
async def test_a_connection_keeps_state_between_the_requests_of_a_legacy_client_only(
    mode: str,
) -> None:
    async def handle(ctx: RequestContext) -> Any:
        state = connection_of(ctx).state
        state["calls"] = state.get("calls", 0) + 1
        assert connection_of(ctx).initialize_accepted
        assert is_modern(ctx) is (mode == "auto")
        return {"calls": state["calls"]}

    counts = [result["calls"] for result in await called(serving(handle), mode)]
    assert counts == ([1, 2] if mode == "legacy" else [1, 1])


@MODES
async def test_a_connection_runs_the_callbacks_of_its_exit_stack(mode: str) -> None:
    closed: list[str] = []

    async def handle(ctx: RequestContext) -> Any:
        async def close() -> None:
            await anyio.lowlevel.checkpoint()
            closed.append("async")

        connection_of(ctx).exit_stack.callback(closed.append, "sync")
        connection_of(ctx).exit_stack.push_async_callback(close)
        return {"closed": len(closed)}

    counts = [result["closed"] for result in await called(serving(handle), mode)]
    assert counts == ([0, 0] if mode == "legacy" else [0, 2])
    assert closed == ["async", "sync"] * 2


async def test_a_connection_sends_unrequested_notifications_to_a_legacy_client() -> None:
    notified = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            notified.set()

    async def handle(ctx: RequestContext) -> Any:
        await connection_of(ctx).outbound.notify("notifications/tools/list_changed", None)
        return {}

    await called(serving(handle), "legacy", message_handler=hear)
    assert notified.is_set()


@MODES
async def test_the_channel_of_a_request_carries_raw_notifications_and_questions(mode: str) -> None:
    heard: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    async def answer(context: object, params: object) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async def handle(ctx: RequestContext) -> Any:
        channel = outbound_of(ctx)
        await channel.notify("notifications/message", {"level": "info", "data": "said"})
        question: dict[str, Any] = {
            "message": "?",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        try:
            return await channel.send_raw_request("elicitation/create", question)
        except NoBackChannelError:
            return {"action": "none"}

    results = await called(serving(handle), mode, logging_callback=log, elicitation_callback=answer)
    assert results == [{"action": "decline" if mode == "legacy" else "none"}] * 2
    assert heard == ["said", "said"]


@MODES
async def test_a_middleware_s_result_is_sent_as_it_is(mode: str) -> None:
    async def handle(ctx: RequestContext) -> Any:
        return {"null": None, "unknown": {"deep": [None]}}

    assert await called(serving(handle), mode) == [{"null": None, "unknown": {"deep": [None]}}] * 2


async def test_serving_a_stream_does_not_enter_the_lifespan() -> None:
    """The gateway outlives each connection; `Server.run()` would open the lifespan once per connection."""
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Server[dict[str, Any]]) -> AsyncGenerator[dict[str, Any]]:
        entered.append("lifespan")
        yield {}

    server: Server[dict[str, Any]] = Server("seams", version="1", lifespan=lifespan)
    to_server, server_read = anyio.create_memory_object_stream[Any]()
    server_write, from_server = anyio.create_memory_object_stream[Any]()
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_dual_era_loop(server, server_read, server_write, lifespan_state={})

        tasks.start_soon(serve)
        await to_server.aclose()
    await from_server.aclose()
    assert entered == []


def initialize(user: object) -> AsgiRequest:
    info = {"name": "tests", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "clientInfo": info, "capabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    accepted = "application/json, text/event-stream"
    headers = [("content-type", "application/json"), ("accept", accepted)]
    return AsgiRequest(body.encode(), headers, user=user)


def user_of(name: str) -> VerifiedCaller:
    return VerifiedCaller(Principal(subject=name, client_id=name), [])


async def test_a_manager_knows_the_transport_and_the_owner_of_a_session() -> None:
    manager = StreamableHTTPSessionManager(Server("seams", version="1"))
    async with manager.run():
        for owner, others in (
            (user_of("a"), (user_of("b"), None, object())),
            (None, (user_of("a"),)),
        ):
            opening = await initialize(owner).of(StreamableHTTPASGIApp(manager))
            session = opening.header("mcp-session-id")
            assert session is not None
            transport = open_transport(manager, session, owner)
            assert transport is not None
            assert transport.mcp_session_id == session
            for other in others:
                assert open_transport(manager, session, other) is None
            await transport.terminate()
            assert open_transport(manager, session, owner) is None
        assert open_transport(manager, "0" * 32, None) is None


@pytest.mark.parametrize("seconds", [60.0, None])
async def test_a_session_is_not_idle_while_a_request_counts_as_in_flight(
    seconds: float | None,
) -> None:
    manager = StreamableHTTPSessionManager(
        Server("seams", version="1"), session_idle_timeout=seconds
    )
    async with manager.run():
        opening = await initialize(None).of(StreamableHTTPASGIApp(manager))
        session = opening.header("mcp-session-id") or ""
        transport = open_transport(manager, session, None)
        assert transport is not None
        idle = transport.idle_scope
        with in_flight(transport):
            with in_flight(transport):
                assert idle is None or idle.deadline == math.inf
            assert idle is None or idle.deadline == math.inf
        if idle is None:
            assert seconds is None
            return
        assert anyio.current_time() < idle.deadline <= anyio.current_time() + 60
        idle.cancel()
        assert open_transport(manager, session, None) is None
