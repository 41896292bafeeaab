"""Each refused request has a line in the log and an entry of the audit log, with the principal and the address."""

from __future__ import annotations

import json

import httpx2
import pytest
from anyio import to_thread
from support.console_client import console_client
from support.gateway_process import JSON, Running, modern_call
from support.hostile_issuer import HostileIssuer
from support.waiting import until

from statehold.server.exit_codes import OK
from statehold.shell.main import main


@pytest.fixture(scope="module")
def settings(settings: JSON) -> JSON:
    return {**settings, "audit": "on"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def audit_entries(
    server: Running, capsys: pytest.CaptureFixture[str], **members: object
) -> list[JSON]:
    capsys.readouterr()
    code = await to_thread.run_sync(main, ["audit", "export", "--data", str(server.data)])
    assert code == OK
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [entry for entry in entries if members.items() <= entry.items()]


async def test_each_refusal_names_the_principal_and_the_address(
    server: Running,
    raw: httpx2.AsyncClient,
    issuer: HostileIssuer,
    asked_issuer: HostileIssuer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = issuer.token(scope="statehold:read", sub="rita")
    body, headers = modern_call("session_create", {})
    asked_issuer.answers["/introspect"] = 503, {}, b""
    try:
        await raw.get("/mcp")
        await raw.get("/mcp?access_token=x")
        await raw.get("/mcp", headers=bearer(issuer.token(aud="https://other.example.org")))
        await raw.get("/mcp", headers=bearer("an-opaque-token-of-the-other-issuer"))
        await raw.post("/mcp", json=body, headers={**headers, **bearer(reader)})
        async with console_client(server.url) as guest:
            await guest.refused("GET", "/me")
            await guest.refused("POST", "/login", {"token": "an-opaque-token"})
            await guest.refused("POST", "/login", {"token": issuer.token(sub="nina", scope="x")})
            await guest.log_in(token=issuer.token(sub="vera", scope="statehold:use"))
            await guest.refused("POST", "/sessions/sh_x/shares", {"link": True})
            guest.csrf = ""
            await guest.refused("POST", "/logout", {})
    finally:
        del asked_issuer.answers["/introspect"]
    lines = (
        "no token from 127.0.0.1",
        "malformed token (a token in the URL) from 127.0.0.1",
        f"wrong token (its audience is not in auth.audience) of {issuer.url}/alice from 127.0.0.1",
        f"unchecked token ({asked_issuer.url}/introspect answers 503) from 127.0.0.1",
        f"missing scope (the operation needs statehold:use) of {issuer.url}/rita from 127.0.0.1",
        "console: login_required for me from 127.0.0.1",
        f"unchecked token ({asked_issuer.url}/introspect answers 503) at the console from 127.0.0.1",
        f"missing scope (the operation needs statehold:read) of {issuer.url}/nina at the console from",
        f"console: not_allowed for create_share of vera at the console ({issuer.url}/vera) from 127",
        f"console: csrf for logout of vera at the console ({issuer.url}/vera) from 127.0.0.1",
    )
    await until(lambda: lines[-1] in server.log)
    for line in lines:
        assert line in server.log, line

    async def is_written() -> bool:
        return len(await audit_entries(server, capsys, outcome="csrf")) == 1

    await until(is_written)
    denied = await audit_entries(server, capsys, decision="deny")
    assert {entry["address"] for entry in denied} == {"127.0.0.1"}
    assert [(entry["outcome"], entry.get("subject")) for entry in denied] == [
        ("token_missing", None),
        ("token_malformed", None),
        ("token_invalid", None),
        ("verifier_unavailable", None),
        ("scope_missing", "rita"),
        ("login_required", None),
        ("verifier_unavailable", None),
        ("scope_missing", "nina"),
        ("not_allowed", "vera"),
        ("csrf", "vera"),
    ]


async def test_the_parties_that_act_for_a_caller_are_in_the_audit_log(
    server: Running,
    raw: httpx2.AsyncClient,
    issuer: HostileIssuer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    act = {"sub": "agent", "act": {"iss": "https://other.example.org", "sub": "planner"}}
    body, headers = modern_call("session_list", {})
    token = issuer.token(sub="paul", act=act)
    answer = await raw.post("/mcp", json=body, headers={**headers, **bearer(token)})
    assert answer.status_code == 200

    async def is_written() -> bool:
        return bool(await audit_entries(server, capsys, subject="paul", event="request"))

    await until(is_written)
    [entry] = await audit_entries(server, capsys, subject="paul", event="request")
    assert entry["on_behalf"] == ["agent", "https://other.example.org planner"]
