"""An agent cannot approve its own calls with a token that may not control sessions."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from support.gateway_process import JSON, modern_call, service
from support.hostile_issuer import AUDIENCE, HostileIssuer

PUBLIC_URL = "https://mcp.example.org"


@pytest.fixture(scope="module")
def settings(issuer: HostileIssuer) -> JSON:
    return {
        "server": {"public_url": PUBLIC_URL, "allowed_hosts": ["mcp.example.org"]},
        "auth": {"issuers": [{"issuer": issuer.url}], "audience": [AUDIENCE, PUBLIC_URL]},
        "services": {"quick": service("asking", "--era", "legacy", approve="all")},
    }


async def call(
    raw: httpx2.AsyncClient, token: str, tool: str, arguments: JSON, **members: Any
) -> JSON:
    body, headers = modern_call(tool, arguments)
    asks: JSON = {"elicitation": {"form": {}, "url": {}}}
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = asks
    body["params"] |= members
    given = {**headers, "authorization": f"Bearer {token}"}
    response = await raw.post("/mcp", json=body, headers=given)
    assert response.status_code == 200, response.text
    return response.json()["result"]


def question(result: JSON) -> tuple[str, JSON]:
    """Return the key and the parameters of the question of a call, as its client has to show it."""
    assert result["resultType"] == "input_required", result
    [(key, request)] = result["inputRequests"].items()
    return key, request["params"]


async def test_only_a_client_that_may_control_decides_in_a_form(
    raw: httpx2.AsyncClient, issuer: HostileIssuer
) -> None:
    agent = issuer.token(scope="statehold:use")
    person = issuer.token(scope="statehold:control")
    created = await call(raw, person, "session_create", {})
    own = {"session_id": created["structuredContent"]["session_id"], "text": "a"}
    asked = await call(raw, agent, "echo", own)
    key, shown = question(asked)
    assert shown["mode"] == "url"
    assert shown["url"].startswith(f"{PUBLIC_URL}/console#/approvals/apr_")
    # An answer to it is no decision, and neither is one of this token to the form of another.
    form = await call(raw, person, "echo", {**own, "text": "b"})
    key, shown = question(form)
    assert shown["mode"] == "form"
    assert '"text": "b"' in shown["message"]
    answer = {"action": "accept", "content": {"decision": "Approve once"}}
    members: JSON = {"requestState": form["requestState"], "inputResponses": {key: answer}}
    stolen = await call(raw, agent, "echo", {**own, "text": "b"}, **members)
    assert question(stolen)[1]["mode"] == "url"
    form = await call(raw, person, "echo", {**own, "text": "c"})
    key, _ = question(form)
    members = {"requestState": form["requestState"], "inputResponses": {key: answer}}
    sent = await call(raw, person, "echo", {**own, "text": "c"}, **members)
    assert json.loads(sent["content"][0]["text"])["arguments"] == {"text": "c"}
