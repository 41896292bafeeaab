"""Sessions that are shared with a group that an issuer names in its tokens."""

from __future__ import annotations

import httpx2
from support.gateway_process import JSON, modern_call
from support.hostile_issuer import HostileIssuer

WAYS: list[tuple[str, str]] = []


async def call(raw: httpx2.AsyncClient, token: str, tool: str, **arguments: object) -> JSON:
    body, headers = modern_call(tool, arguments)
    given = {**headers, "authorization": f"Bearer {token}"}
    response = await raw.post("/mcp", json=body, headers=given)
    assert response.status_code == 200, response.text
    return response.json()["result"]


async def test_a_group_is_one_of_the_issuer_that_named_it(
    raw: httpx2.AsyncClient, issuer: HostileIssuer, asked_issuer: HostileIssuer
) -> None:
    admin = "statehold:admin"
    ada = issuer.token(sub="ada", scope=admin)
    member = issuer.token(sub="ben", scope=admin, groups=["crew"])
    other = issuer.token(sub="eve", scope=admin, groups=["other", "crew2"])
    reader = issuer.token(sub="joe", scope="statehold:read", groups=["crew"])
    created = await call(raw, ada, "session_create", state={"n": 1})
    session = created["structuredContent"]["session_id"]
    body, headers = modern_call("session_share", {"session_id": session, "group": "crew"})
    for scope, status in (("statehold:use", 403), ("statehold:control", 200)):
        token = issuer.token(sub="ada", scope=scope)
        given = {**headers, "authorization": f"Bearer {token}"}
        assert (await raw.post("/mcp", json=body, headers=given)).status_code == status
    for token, is_allowed in ((member, True), (reader, True), (other, False)):
        result = await call(raw, token, "state_get", session_id=session)
        assert bool(result.get("isError")) != is_allowed
    subject = issuer.token(sub="crew", scope=admin)
    assert (await call(raw, subject, "state_get", session_id=session))["isError"]
    listed = await call(raw, member, "session_list", shared=True)
    assert [each["session_id"] for each in listed["structuredContent"]["sessions"]] == [session]
    shared = {"session_id": session, "group": "crew", "issuer": asked_issuer.url}
    assert not (await call(raw, ada, "session_share", **shared)).get("isError")
    assert not (await call(raw, ada, "session_unshare", session_id=session, group="crew")).get(
        "isError"
    )
    # The group of the same name of another issuer keeps its share.
    assert (await call(raw, member, "state_get", session_id=session))["isError"]
