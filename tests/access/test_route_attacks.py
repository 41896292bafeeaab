"""Attacks on every route of the application without a forged token: credentials in odd places, odd ids, states of others."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import httpx2
import psutil
import pytest
from mcp.server.lowlevel import Server
from support.application_routes import filled_routes, routes_of
from support.console_client import COOKIE, console_client
from support.gateway_process import JSON, Running, modern_call
from support.hostile_issuer import HostileIssuer

from statehold.server.gateway.gateway import Gateway

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream"}
ODD_IDS = (
    *("%2e%2e", "%2e%2e%2f%2e%2e%2fetc", "sh_%00", "sh_a%0d%0aset-cookie:x=1", "%F0%9F%98%80"),
    *("'%20OR%201=1--", "%ff%fe", "a" * 5000, "sh_" + "A" * 26, "%25s%25n", "{session}", "*"),
)
"""Ids that no session has, as they stand in a path."""


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def is_public(method: str, path: str) -> bool:
    # The page of the login asks for the kinds of login.
    return (method, path) == ("GET", "/api/v1/login") or path.startswith(
        (
            *("/livez", "/readyz", "/health", "/mcp/server-card", "/.well-known/ai-catalog.json"),
            *("/.well-known/oauth-protected-resource", "/console"),
        )
    )


async def send(
    raw: httpx2.AsyncClient, method: str, path: str, headers: Sequence[tuple[str, str]]
) -> httpx2.Response:
    body = PING if method == "POST" else None
    return await raw.request(method, path, json=body, headers=[*ACCEPT.items(), *headers])


async def test_a_token_in_the_wrong_place_gets_in_on_no_route(
    gateway: Gateway,
    mcp_server: Server[Any],
    server: Running,
    raw: httpx2.AsyncClient,
    issuer: HostileIssuer,
) -> None:
    token = issuer.token()
    once = ("authorization", f"Bearer {token}")
    for method, path in sorted(filled_routes(gateway, mcp_server)):
        plain = await send(raw, method, path, [])
        # The console takes cookies only. It answers as if there were no header.
        is_told = not is_public(method, path) and not path.startswith("/api/v1")
        for where, headers in (
            (path, [once, once]),
            (path, [once, ("Authorization", "Bearer other-token-0123456789")]),
            (f"{path}?access_token={token}", []),
            (f"{path}?access_token={token}", [once]),
            (path, [("cookie", f"access_token={token}; {COOKIE}={token}")]),
            (path, [("x-forwarded-authorization", once[1]), ("proxy-authorization", once[1])]),
        ):
            answer = await send(raw, method, where, headers)
            assert token not in answer.text
            if is_told:
                is_malformed = (len(headers) == 2 and headers[0] == once) or "?" in where
                assert answer.status_code == (400 if is_malformed else 401), (method, path, headers)
                assert answer.headers["www-authenticate"].startswith("Bearer ")
            elif is_public(method, path) and not path.startswith("/api/v1"):
                assert answer.status_code == plain.status_code, (method, path)
            else:
                # An unknown parameter may be refused before or after the login that is missing.
                refused = (200, 400) if is_public(method, path) else (400, 401)
                assert answer.status_code in refused, (method, path, answer.text)
    assert token not in server.log


@pytest.fixture
async def cookie(server: Running, issuer: HostileIssuer) -> AsyncGenerator[dict[str, str]]:
    async with console_client(server.url) as client:
        await client.log_in(token=issuer.token())
        yield {"cookie": f"{COOKIE}={client.cookie}", "x-csrf-token": client.csrf}


async def test_an_odd_id_does_no_harm_on_any_route(
    gateway: Gateway,
    mcp_server: Server[Any],
    server: Running,
    raw: httpx2.AsyncClient,
    issuer: HostileIssuer,
    cookie: dict[str, str],
) -> None:
    routes = [(m, path) for m, path in routes_of(gateway, mcp_server) if "{" in path]
    assert len(routes) > 25
    good = {**ACCEPT, **bearer(issuer.token()), **cookie}

    async def check(method: str, path: str, odd: str) -> None:
        filled = re.sub(r"\{[^}]*\}", lambda _: odd, path)
        body: JSON | None = None
        if method == "POST":
            body = PING if path.endswith("/mcp") else {}
        if method == "GET" and path.endswith("/mcp"):
            # It would be an endless stream.
            return
        answer = await raw.request(method, filled, json=body, headers=good)
        assert answer.status_code < 500, (method, filled[:99], answer.text)
        assert "set-cookie" not in answer.headers
        assert "Traceback" not in answer.text
        if path.startswith("/api/v1") and answer.status_code == 200:
            raise AssertionError((method, filled[:99], answer.text))

    for odd in ODD_IDS:
        async with anyio.create_task_group() as tasks:
            for method, path in routes:
                tasks.start_soon(check, method, path, odd)
    assert "Traceback" not in server.log


def children_of(server: Running) -> int:
    return len(psutil.Process(server.process.pid).children(recursive=True))


async def call(
    raw: httpx2.AsyncClient, token: str, tool: str, arguments: JSON, **params: Any
) -> httpx2.Response:
    body, headers = modern_call(tool, arguments)
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
    body["params"] |= params
    return await raw.post("/mcp", json=body, headers={**headers, **bearer(token)})


async def test_a_call_without_its_scope_starts_no_upstream(
    server: Running, raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    created = await call(raw, issuer.token(sub="sue"), "session_create", {})
    session = created.json()["result"]["structuredContent"]["session_id"]
    reading = issuer.token(sub="sue", scope="statehold:read")
    before = children_of(server)
    for tool in ("inc", "ask", "session_bind", "session_restart", "session_resume"):
        refused = await call(raw, reading, tool, {"session_id": session})
        assert refused.status_code == 403
    info = await call(raw, reading, "session_info", {"session_id": session})
    [unopened] = info.json()["result"]["structuredContent"]["services"]
    assert (unopened["status"], unopened["generation"]) == ("unopened", 0)
    assert children_of(server) == before


async def test_a_request_state_that_is_altered_foreign_or_used_continues_no_call(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    alice, ben = issuer.token(), issuer.token(sub="ben")
    # A subject belongs to its issuer, and another client of the same person may go on.
    phone = issuer.token(client_id="phone")
    created = await call(raw, alice, "session_create", {})
    session = created.json()["result"]["structuredContent"]["session_id"]
    asked = (await call(raw, alice, "ask", {"session_id": session})).json()["result"]
    state = asked["requestState"]
    answer = {"action": "accept", "content": {"answer": "mine"}}
    answers = dict.fromkeys(asked["inputRequests"], answer)

    async def go_on(token: str, with_state: str, **arguments: str) -> str:
        given = {"session_id": session, **arguments}
        result = await call(
            raw, token, "ask", given, requestState=with_state, inputResponses=answers
        )
        return result.text

    for altered in (state[:-1], f"{state}x", state.swapcase(), "park:", f"up:{state}", "park:" * 9):
        assert "mine" not in await go_on(alice, altered), altered
    foreign, unknown = await go_on(ben, state), await go_on(ben, "park:unknown")
    assert foreign == unknown
    assert "has ended" in foreign
    assert "mine" in await go_on(phone, state)
    assert "has ended" in await go_on(alice, state)
