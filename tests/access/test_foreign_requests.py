"""On every route of the application, a session of another caller is answered as an unknown one is."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from support.application_routes import routes_of
from support.console_client import COOKIE, console_client
from support.gateway_process import JSON, Running, count, opened_session, service, structured
from support.hostile_issuer import HostileIssuer
from support.session_requests import (
    ACCEPT,
    LEGACY_VERSION,
    TOOLS,
    SessionRequest,
    session_requests,
)

from statehold.server.gateway.gateway import Gateway

UNKNOWN = "sh_" + "a" * 26


@pytest.fixture(scope="module")
def settings(settings: JSON) -> JSON:
    return {**settings, "services": {"asking": service("asking")}}


@asynccontextmanager
async def agent(server: Running, token: str) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        yield client


class Caller:
    """A caller with a token, a transport session and a login at the console."""

    def __init__(self, client: httpx2.AsyncClient, token: str) -> None:
        self._client = client
        self._authorization = {"authorization": f"Bearer {token}"}
        self.cookie = {"cookie": ""}
        self.csrf = ""
        self.transport_session = ""

    async def log_in(self, url: str, token: str) -> None:
        async with console_client(url) as client:
            await client.log_in(token=token)
            self.cookie, self.csrf = {"cookie": f"{COOKIE}={client.cookie}"}, client.csrf
        about = {"name": "tests", "version": "0"}
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": about}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        answer = await self._client.post(
            "/mcp", json=hello, headers={**ACCEPT, **self._authorization}
        )
        self.transport_session = answer.headers["mcp-session-id"]

    async def send(self, request: SessionRequest, session_id: str) -> tuple[int, str, JSON]:
        """Return the status, the body and the headers of an answer, without what differs each time."""
        credentials = self.cookie if request.is_of_console else self._authorization
        answer = await self._client.request(
            request.method,
            request.path_of(session_id),
            content=request.body_of(session_id),
            headers={**request.headers_of(session_id), **credentials},
        )
        headers = {name: value for name, value in answer.headers.items() if name != "date"}
        headers.pop("content-length", None)
        # A refusal may come before the body of its request has.
        headers.pop("connection", None)
        # The events of a stream are numbered.
        text = re.sub(r"(?m)^id: .*$", "", answer.text)
        return answer.status_code, text.replace(session_id, "ID"), headers

    def requests(self) -> list[SessionRequest]:
        return session_requests(self.transport_session, self.csrf)


@pytest.fixture
async def ben(server: Running, issuer: HostileIssuer, raw: httpx2.AsyncClient) -> Caller:
    token = issuer.token(sub="ben")
    caller = Caller(raw, token)
    await caller.log_in(server.url, token)
    return caller


async def test_a_foreign_session_is_an_unknown_one_on_every_route(
    server: Running, issuer: HostileIssuer, ben: Caller
) -> None:
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(agent(server, issuer.token()))
        sessions = {"live": "", "idle": "", "paused": "", "closed": ""}
        for state in sessions:
            sessions[state] = await opened_session(alice, state={"n": 1})
        await count(alice, sessions["live"])
        await alice.call_tool("session_pause", {"session_id": sessions["paused"]})
        await alice.call_tool("session_close", {"session_id": sessions["closed"]})
        for request in ben.requests():
            unknown = await ben.send(request, UNKNOWN)
            if "/operator/" in request.title:
                assert unknown[0] == 403
            elif "unsubscribe" not in request.title:
                words = "Task not found" if "tasks/" in request.title else "session_not_found"
                assert words in unknown[1], (request.title, unknown)
            for state, session in sessions.items():
                foreign = await ben.send(request, session)
                assert foreign == unknown, (request.title, state)
        assert await count(alice, sessions["live"]) == 2
        listed = structured(await alice.call_tool("session_list", {}))["sessions"]
        assert {sessions["live"], sessions["idle"], sessions["paused"]} == {
            each["session_id"] for each in listed
        }


async def test_no_route_and_no_tool_with_a_session_is_left_out(
    gateway: Gateway, mcp_server: Server[object], ben: Caller
) -> None:
    routes = {
        (method, path) for method, path in routes_of(gateway, mcp_server) if "{session" in path
    }
    assert len(routes) > 25
    tried = {(request.method, request.path.replace("{session}", "x")) for request in ben.requests()}
    for method, path in routes:
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", path)
        if method == "POST" or path.startswith("/api/v1"):
            assert any(m == method and re.fullmatch(pattern, p) for m, p in tried), (method, path)
    definitions = gateway.tools.catalog("explicit").definitions
    own = {
        tool["name"]
        for tool in definitions
        if gateway.tools.own_tool(tool["name"], "explicit") is not None
        and "session_id" in tool["inputSchema"]["properties"]
    }
    assert len(own) > 20
    assert own <= {tool for tool, _ in TOOLS}


async def test_a_foreign_session_is_an_unknown_one_to_a_subscriber(
    server: Running, issuer: HostileIssuer
) -> None:
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(agent(server, issuer.token()))
        other = await stack.enter_async_context(agent(server, issuer.token(sub="ben")))
        theirs = await opened_session(alice, state={"n": 1})
        mine = await opened_session(other, state={"n": 1})
        for client, sessions in ((other, (theirs, UNKNOWN)), (alice, (mine, UNKNOWN))):
            for session in sessions:
                uri = f"session://{session}/state"
                async with client.listen(resource_subscriptions=[uri]) as changes:
                    assert not changes.honored.resource_subscriptions


async def test_a_foreign_stream_is_an_unknown_one_to_its_messages(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    alice, ben = (
        {"authorization": f"Bearer {issuer.token(sub=name)}"} for name in ("alice", "ben")
    )
    async with raw.stream("GET", "/sse", headers=alice) as stream:
        lines = stream.aiter_lines()
        endpoint = ""
        while not endpoint.startswith("data: "):
            endpoint = await anext(lines)
        endpoint = endpoint.removeprefix("data: ")
        assert (await raw.post(endpoint, json=ping, headers=alice)).status_code == 202
        foreign = await raw.post(endpoint, json=ping, headers=ben)
        path, _, session_id = endpoint.partition("=")
        assert len(session_id) == 32
        unknown = await raw.post(f"{path}={'0' * 32}", json=ping, headers=ben)
        assert (foreign.status_code, foreign.text) == (unknown.status_code, unknown.text)
        assert foreign.status_code == 404
