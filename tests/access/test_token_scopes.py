"""The scope of a token decides what its caller may do, before anything runs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from support.console_client import console_client
from support.gateway_process import JSON, Running, modern_call, opened_session, service, text_of
from support.hostile_issuer import AUDIENCE, HostileIssuer, hostile_issuer
from support.odd_http import OddServer, odd_server

from statehold.access.scopes import (
    ADMIN,
    CONTROL,
    METHOD_SCOPES,
    READ,
    SCOPES,
    TOOL_SCOPES,
    USE,
    OperationScopes,
    Scope,
    scopes_in,
)
from statehold.server.gateway.gateway import Gateway

METADATA_URL = "https://mcp.example.org/.well-known/oauth-protected-resource/mcp"


@pytest.fixture(scope="module")
def issuer() -> Generator[HostileIssuer]:
    with hostile_issuer() as running:
        yield running


@pytest.fixture(scope="module")
def echo() -> Generator[OddServer]:
    """An upstream over HTTP that notes the headers that it gets."""
    with odd_server() as odd:
        yield odd


@pytest.fixture(scope="module")
def call_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "calls.jsonl"


@pytest.fixture(scope="module")
def settings(issuer: HostileIssuer, echo: OddServer, call_log: Path) -> JSON:
    return {
        "toolsets": ["core", "lifecycle", "view", "state", "history", "branch", "admin", "calls"],
        "server": {"public_url": "https://mcp.example.org"},
        "auth": {"issuers": [{"issuer": issuer.url}], "audience": [AUDIENCE]},
        "services": {
            "quick": service("quick", "--log", str(call_log), sandbox="off"),
            "echo": {"url": echo.url, "prefix": "echo_"},
        },
    }


@pytest.fixture
async def raw(server: Running) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        yield client


def calls_in(log: Path) -> str:
    """Return the calls that the upstream has noted."""
    return log.read_text() if log.exists() else ""


async def test_every_operation_of_the_application_is_in_the_table(
    gateway: Gateway, mcp_server: Server[Any]
) -> None:
    own = {
        tool["name"]
        for tool in gateway.tools.catalog("explicit").definitions
        if gateway.tools.own_tool(tool["name"], "explicit") is not None
    }
    assert len(own) > 20
    assert own == set(TOOL_SCOPES)
    handlers = (
        *mcp_server._request_handlers,  # pyright: ignore[reportPrivateUsage]
        *mcp_server._notification_handlers,  # pyright: ignore[reportPrivateUsage]
    )
    assert len(handlers) > 12
    assert set(handlers) <= set(METHOD_SCOPES)
    for name, scope in TOOL_SCOPES.items():
        tool = gateway.tools.own_tool(name, "explicit")
        assert tool is not None
        assert scope == ADMIN if tool.toolset == "admin" else (scope == READ) == tool.read_only


def test_scopes_include_those_before_them() -> None:
    assert scopes_in("openid statehold:control") == [READ, USE, CONTROL]
    assert scopes_in(["statehold:admin", 7]) == list(SCOPES)
    words = ("", "statehold:Read", "statehold", "statehold:read,statehold:use")
    for nothing in (*words, None, 7, JSON()):
        assert scopes_in(nothing) == []


def test_a_tool_of_a_service_needs_use_whatever_its_name() -> None:
    scopes = OperationScopes(["session_list"])
    call: JSON = {"method": "tools/call", "params": {"name": "state_get"}}
    assert scopes.required(call) == USE
    assert scopes.required({"method": "tools/call", "params": {"name": "session_list"}}) == READ
    odd_params: list[object] = [{"name": ["session_list"]}, [], None, {}]
    for odd in odd_params:
        assert scopes.required({"method": "tools/call", "params": odd}) == USE
    assert scopes.required({"method": ["tools/list"]}) == USE
    assert scopes.required({"method": "vendor/unknown"}) == USE


async def test_an_operation_beyond_the_scope_is_refused_with_the_scope_that_it_needs(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    held: list[tuple[Scope | None, str]] = [
        (scope, issuer.token(scope=scope or "openid")) for scope in (None, *SCOPES)
    ]
    for name, needed in TOOL_SCOPES.items():
        body, headers = modern_call(name, {})
        for scope, token in held:
            given = {**headers, "authorization": f"Bearer {token}"}
            answer = await raw.post("/mcp", json=body, headers=given)
            if scope is not None and SCOPES.index(scope) >= SCOPES.index(needed):
                assert answer.status_code == 200, (name, scope)
                continue
            assert answer.status_code == 403, (name, scope)
            assert answer.headers["www-authenticate"] == (
                'Bearer error="insufficient_scope", error_description="The operation needs a '
                f'further scope", scope="{needed}", resource_metadata="{METADATA_URL}"'
            )


async def test_a_token_without_any_scope_reads_nothing(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    headers = {"authorization": f"Bearer {issuer.token(scope='openid')}"}
    for method, path in (("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("GET", "/s/a/mcp")):
        answer = await raw.request(method, path, headers=headers)
        assert answer.status_code == 403
        assert 'scope="statehold:read"' in answer.headers["www-authenticate"]


CALL = '"params": {"name": "inc", "arguments": {"session_id": "SESSION"}}'
TRICKS = {
    "plain": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", ' + CALL + "}",
    "method twice": '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "method": "tools/call", '
    + CALL
    + "}",
    "method twice, reversed": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "method": '
    '"tools/list", ' + CALL + "}",
    "name twice": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": '
    '"session_list", "name": "inc", "arguments": {"session_id": "SESSION"}}}',
    "name twice, reversed": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": '
    '{"name": "inc", "name": "session_list", "arguments": {"session_id": "SESSION"}}}',
    "escaped": '{"jsonrpc": "2.0", "id": 1, "meth\\u006fd": "tools\\u002fcall", ' + CALL + "}",
    "batch": '[{"jsonrpc": "2.0", "id": 1, "method": "tools/call", ' + CALL + "}]",
    "byte order mark": '\ufeff{"jsonrpc": "2.0", "id": 1, "method": "tools/call", ' + CALL + "}",
    "not a number": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "x": NaN, ' + CALL + "}",
    "half a pair": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "x": "\\ud800", '
    + CALL
    + "}",
    "in upper case": '{"jsonrpc": "2.0", "id": 1, "method": "Tools/Call", ' + CALL + "}",
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_form_of_a_message_gets_around_its_scope(
    trick: str, raw: httpx2.AsyncClient, issuer: HostileIssuer, server: Running, call_log: Path
) -> None:
    reading, using = (issuer.token(scope=scope) for scope in ("statehold:read", "statehold:use"))
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {using}"}, timeout=60) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode="auto") as owner,
    ):
        session = await opened_session(owner)
        before = calls_in(call_log)
        body = TRICKS[trick].replace("SESSION", session)
        headers = {
            "authorization": f"Bearer {reading}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        lies: tuple[dict[str, str], ...] = (
            {},
            {"mcp-method": "tools/list"},
            {"mcp-method": "tools/call", "mcp-name": "inc"},
        )
        for era in ("2025-11-25", "2026-07-28"):
            for lie in lies:
                for text in (body.encode(), body.encode("utf-16")):
                    given = {**headers, **lie, "mcp-protocol-version": era}
                    answer = await raw.post("/mcp", content=text, headers=given)
                    assert answer.status_code in (200, 202, 400, 403), answer.text
        assert calls_in(call_log) == before
        await owner.call_tool("inc", {"session_id": session})
        assert calls_in(call_log) != before


async def test_a_missing_scope_leaves_nothing_behind(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    token = issuer.token(scope="statehold:read", sub="reader")
    body, headers = modern_call("session_create", {"name": "never"})
    given = {**headers, "authorization": f"Bearer {token}"}
    assert (await raw.post("/mcp", json=body, headers=given)).status_code == 403
    body, headers = modern_call("session_list", {})
    given = {**headers, "authorization": f"Bearer {token}"}
    listed = await raw.post("/mcp", json=body, headers=given)
    assert listed.status_code == 200
    assert "never" not in listed.text


async def test_a_console_login_has_the_rights_and_the_life_of_its_token(
    server: Running, issuer: HostileIssuer
) -> None:
    async with console_client(server.url) as client:
        for scope, rights in (("use", "view"), ("control", "control"), ("admin", "control")):
            client.cookie = client.csrf = ""
            login = await client.log_in(token=issuer.token(scope=f"statehold:{scope}"))
            assert (login["rights"], login["principal"]) == (rights, "alice")
            assert not login["is_machine_user"]
        client.cookie = client.csrf = ""
        refused = await client.refused("POST", "/login", {"token": issuer.token(scope="openid")})
        assert (refused["status"], refused["code"]) == (403, "not_allowed")


async def test_an_upstream_sees_no_credential_of_a_caller(
    server: Running, issuer: HostileIssuer, echo: OddServer
) -> None:
    token = issuer.token(scope="statehold:use")
    secrets = {"cookie": "id=cookie-secret-1", "dpop": "dpop-secret-2", "x-api-key": "key-secret-3"}
    headers = {**secrets, "authorization": f"Bearer {token}", "proxy-authorization": "Basic abc"}
    for mode in ("auto", "legacy"):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(
                streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode
            ) as client,
        ):
            session = await opened_session(client)
            result = await client.call_tool("echo_inc", {"session_id": session})
            assert not result.is_error, text_of(result)
    assert echo.count_of("tools/call") == 2
    text = json.dumps(echo.headers)
    for name in ("authorization", "cookie", "dpop", "x-api-key", "proxy-authorization"):
        assert not any(name in given for given in echo.headers), name
    for secret in (token, "cookie-secret", "dpop-secret", "key-secret"):
        assert secret not in text
        assert secret not in server.log
