"""A client logs a person in at the authorization server: consent, the issuer, a code, tokens."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio import to_thread
from pydantic import SecretStr
from support.document_server import DocumentServer
from support.facade_flow import CALLBACK, CLIENT, SECRET, Flow, facade_config
from support.gateway_process import JSON, Running, serving
from support.hostile_issuer import HostileIssuer
from support.selection import matrix
from support.waiting import until

from statehold.access.claims import ClaimChecks, VerifiedCaller
from statehold.access.config.auth import AuthSettings, FacadeSettings
from statehold.access.facade.clients import LoginRequest
from statehold.access.facade.logins import GRACE_SECONDS, FacadeLogins
from statehold.access.scopes import USE
from statehold.sessions.records import Principal
from statehold.sessions.store.sql import SQLStore
from statehold.shell.main import main


async def test_a_client_with_a_document_logs_a_person_in(flow: Flow) -> None:
    tokens = await flow.log_in()
    assert tokens["token_type"] == "Bearer"
    assert tokens["scope"] == "statehold:use"
    assert 590 <= tokens["expires_in"] <= 600
    assert await flow.status(tokens["access_token"]) == 200
    assert await flow.status(tokens["access_token"], "server_stats") == 403
    assert await flow.status(tokens["refresh_token"]) == 401
    assert flow.sent["code_challenge_method"] == "S256"
    assert flow.sent["client_id"] == CLIENT
    assert flow.sent["redirect_uri"] == f"{flow.url}/callback"
    assert flow.sent["state"] != "state of the client"


async def test_a_page_asks_for_consent_before_anything_goes_to_the_issuer(flow: Flow) -> None:
    answer = await flow.browser.get(flow.authorize_url())
    assert answer.status_code == 302
    page = await flow.browser.get(answer.headers["location"])
    policy = page.headers["content-security-policy"]
    for directive in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'"):
        assert directive in policy
    assert "script" not in policy
    assert "<script" not in page.text
    assert "Editor" in page.text
    assert flow.client_id.split("/")[2] in page.text
    assert "Create and change sessions" in page.text
    assert "Delete, export" not in page.text
    cookie = page.headers["set-cookie"]
    for part in ("__Host-statehold-", "HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert part in cookie
    assert flow.issuer.requests["/authorize"] == 0


FAKE = 'Claude” of claude.ai.\u3164\u3164 It was "verified". “It\u202e'


@pytest.mark.parametrize(
    ("name", "shown"),
    matrix(
        (FAKE, "Claude of claude.ai. It was v…"),
        ("Editor 日本", "Editor 日本"),
        ("\u2800\u3164", "no name"),
        ("a" + "\u0301" * 40, "á\u0301\u0301"),
    ),
)
async def test_the_name_of_a_program_stands_in_a_row_of_its_own_below_its_host(
    flow: Flow, documents: DocumentServer, name: str, shown: str
) -> None:
    flow.client_id = documents.url.replace("client.json", name.encode()[-8:].hex())
    documents.serve(client_name=name, client_id=flow.client_id)
    page = await flow.browser.get(
        (await flow.browser.get(flow.authorize_url())).headers["location"]
    )
    rows = re.findall(r"<dd><bdi>(.*?)</bdi></dd>", page.text)
    assert rows == [
        httpx2.URL(flow.client_id).netloc.decode(),
        httpx2.URL(flow.redirect_uri).netloc.decode(),
        httpx2.URL(flow.issuer.url).netloc.decode(),
        shown,
    ]
    assert page.text.count(shown) == 1
    denied = await flow.browser.consent(page, "deny")
    assert shown not in denied.text
    documents.serve(client_name="Editor")


async def test_the_texts_of_a_request_stand_on_no_page(flow: Flow) -> None:
    lie = "Your account is locked: call 555 0100"
    for changes in ({"client_id": lie}, {"redirect_uri": lie}, {"client_id": "shc_" + lie}):
        answer = await flow.browser.get(flow.authorize_url(**changes))
        assert answer.status_code == 400
        assert lie not in answer.text


async def test_a_person_denies(flow: Flow) -> None:
    answer = await flow.browser.get(flow.authorize_url())
    page = await flow.browser.get(answer.headers["location"])
    denied = await flow.browser.consent(page, "deny")
    assert denied.status_code == 200
    assert "error=access_denied&amp;state=state+of+the+client&amp;iss=" in denied.text


async def test_a_refresh_token_rotates_and_a_used_one_ends_the_login(flow: Flow) -> None:
    first = await flow.log_in()
    second = (await flow.refresh(first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert await flow.status(second["access_token"]) == 200
    third = (await flow.refresh(second["refresh_token"])).json()
    reused = await flow.refresh(first["refresh_token"])
    assert (reused.status_code, reused.json()["error"]) == (400, "invalid_grant")
    assert (await flow.refresh(third["refresh_token"])).status_code == 400
    # Not the token that was verified a moment ago, which is kept for a minute at most.
    assert await flow.status(third["access_token"]) == 401


async def test_two_processes_of_a_client_refresh_at_once_and_get_the_same_tokens(
    flow: Flow,
) -> None:
    first = await flow.log_in()
    answers: list[JSON] = []

    async def refresh() -> None:
        answer = await flow.refresh(first["refresh_token"])
        assert answer.status_code == 200, answer.text
        answers.append(answer.json())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(refresh)
    # The answer was lost.
    await refresh()
    pairs = {(each["access_token"], each["refresh_token"]) for each in answers}
    assert len(pairs) == 1
    other = await flow.refresh(first["refresh_token"], client_id=await flow.register())
    assert other.status_code == 400
    [(access_token, refresh_token)] = pairs
    assert await flow.status(access_token) == 200
    assert (await flow.refresh(refresh_token)).status_code == 200


def found_code(login: LoginRequest) -> VerifiedCaller:
    issuer = "https://login.example.org"
    return VerifiedCaller(Principal(issuer=issuer, subject="a", client_id=login.client_id), [])


@pytest.mark.parametrize(
    ("seconds", "is_same"), matrix((GRACE_SECONDS + 1, False), (GRACE_SECONDS, True), (-30, True))
)
async def test_a_refresh_token_that_is_used_again_later_ends_the_login(
    tmp_path: Path, seconds: int, is_same: bool
) -> None:
    """On two nodes, the clocks of which may differ."""
    facade = FacadeSettings(
        issuer="https://login.example.org", client_id="x", client_secret=SecretStr(SECRET)
    )
    checks = ClaimChecks(AuthSettings(audience=["https://mcp.example.org/mcp"], facade=facade))
    request = LoginRequest(
        client_id="c", redirect_uri=CALLBACK, scopes=[USE], challenge="", resource=""
    )
    async with SQLStore.sqlite(tmp_path) as store:
        one, two = (FacadeLogins(store, facade, checks, SECRET) for _ in range(2))
        now = 1e9
        code = await one.find(await one.open(found_code(request), request, now), now)
        assert code is not None
        first = await one.exchange(code, [USE], now)
        assert first is not None
        assert first.refresh_token is not None
        found = [await node.find(first.refresh_token, now) for node in (one, two)]
        [one_stored, two_stored] = [each for each in found if each is not None]
        second = await one.exchange(one_stored, [USE], now)
        assert second is not None
        assert second.refresh_token is not None
        # The other node looked before the exchange.
        if is_same:
            again = await two.exchange(two_stored, [USE], now + seconds)
            assert again is not None
            assert again.refresh_token == second.refresh_token
            assert again.access_token == second.access_token
        found_again = await two.find(first.refresh_token, now + seconds)
        assert (found_again is not None) == is_same
        assert (await one.find(second.refresh_token, now) is not None) == is_same


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
async def test_a_client_revokes_a_login(flow: Flow, name: str) -> None:
    tokens = await flow.log_in()
    unknown = {"client_id": "unknown", "token": tokens[name]}
    assert (await flow.http.post("/revoke", data=unknown)).status_code == 401
    other = {"client_id": await flow.register(), "token": tokens[name]}
    assert (await flow.http.post("/revoke", data=other)).status_code == 200
    tokens |= (await flow.refresh(tokens["refresh_token"])).json()
    form = {"client_id": flow.client_id, "token": tokens[name]}
    assert (await flow.http.post("/revoke", data=form)).status_code == 200
    assert (await flow.refresh(tokens["refresh_token"])).status_code == 400
    assert await flow.status(tokens["access_token"]) == 401
    assert (await flow.http.post("/revoke", data=form)).status_code == 200


async def test_a_client_registers_itself_and_keeps_the_sessions_of_the_person(flow: Flow) -> None:
    ids: list[str] = []
    sessions: list[str] = []
    for _ in range(2):
        flow.client_id = await flow.register()
        tokens = await flow.log_in(sub="carol")
        assert "not verified" in flow.browser.pages[-1]
        if not sessions:
            created = await call(flow, tokens, "session_create")
            sessions.append(created["session_id"])
        found = await call(flow, tokens, "session_list")
        assert [each["session_id"] for each in found["sessions"]] == sessions
        ids.append(flow.client_id)
    assert ids[0] != ids[1]


async def call(flow: Flow, tokens: JSON, tool: str) -> JSON:
    answer = await flow.call(tokens["access_token"], tool)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["structuredContent"]


@pytest.mark.thorough
async def test_the_scope_admin_is_for_operators(flow: Flow) -> None:
    for groups, scope in ((["staff"], "statehold:admin"), ([], "statehold:use")):
        await flow.go_to_issuer(scope="statehold:admin")
        flow.sign(groups=groups)
        query = httpx2.URL((await flow.come_back()).headers["location"]).params
        tokens = (await flow.exchange(query["code"])).json()
        assert tokens["scope"] == scope
        status = await flow.status(tokens["access_token"], "server_stats")
        assert (status == 200) == (scope == "statehold:admin")


async def test_the_metadata_name_what_clients_need(flow: Flow) -> None:
    path = "/.well-known/oauth-authorization-server"
    answer = await flow.http.get(path, headers={"origin": "https://app.example.org"})
    assert answer.headers["access-control-allow-origin"] == "*"
    document = answer.json()
    assert document["issuer"] == flow.url
    assert document["client_id_metadata_document_supported"]
    assert document["authorization_response_iss_parameter_supported"]
    assert "none" in document["token_endpoint_auth_methods_supported"]
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert (await flow.http.get(f"{path}/other")).status_code == 404
    resource = (await flow.http.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert resource["authorization_servers"] == [flow.url]


async def test_the_store_and_the_log_hold_no_secret(flow: Flow, server: Running) -> None:
    code = await flow.code()
    tokens = (await flow.exchange(code)).json()
    secrets = [code, tokens["refresh_token"], tokens["access_token"], SECRET]
    # The id of the login is a part of its secrets.
    secrets += [text.partition(".")[0] for text in secrets[:2]]
    content = b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file())
    for secret in secrets:
        assert secret.encode() not in content
        assert secret not in server.log


async def test_a_session_is_shared_with_a_group_of_the_issuer(flow: Flow) -> None:
    tokens: dict[str, str] = {}
    for name, group in (("ada", "x"), ("ben", "crew"), ("eve", "other")):
        await flow.go_to_issuer(scope="statehold:control")
        flow.sign(sub=name, groups=[group])
        query = httpx2.URL((await flow.come_back()).headers["location"]).params
        tokens[name] = (await flow.exchange(query["code"])).json()["access_token"]
    created = (await flow.call(tokens["ada"], "session_create")).json()["result"]
    shared = {"session_id": created["structuredContent"]["session_id"], "group": "crew"}
    assert (
        not (await flow.call(tokens["ada"], "session_share", shared))
        .json()["result"]
        .get("isError")
    )
    info = {"session_id": shared["session_id"]}
    for name, is_refused in (("ben", False), ("eve", True)):
        answer = await flow.call(tokens[name], "session_info", info)
        assert bool(answer.json()["result"].get("isError")) == is_refused


async def test_the_audit_log_has_each_login_and_each_refused_one(
    flow: Flow, server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    await flow.log_in(sub="dora")
    await flow.go_to_issuer()
    flow.sign(sub="mallory", nonce="x" * 43)
    assert (await flow.come_back()).status_code == 403

    async def logins() -> list[tuple[str | None, str]]:
        capsys.readouterr()
        words = ["audit", "export", "--data", str(server.data)]
        await to_thread.run_sync(main, words)
        entries = map(json.loads, capsys.readouterr().out.splitlines())
        of_facade = (each for each in entries if each["operation"] == "authorize")
        return [(each.get("subject"), each["outcome"]) for each in of_facade][-2:]

    async def is_written() -> bool:
        return await logins() == [("dora", "ok"), (None, "login_failed")]

    await until(is_written)


@pytest.mark.thorough
async def test_a_proxy_need_not_say_that_it_speaks_tls(
    issuer: HostileIssuer, tmp_path: Path
) -> None:
    url = "https://mcp.example.org"
    config = facade_config(tmp_path, url, issuer.url)
    config.write_text(
        config.read_text().replace(
            '"public_url"', 'allowed_hosts = ["mcp.example.org"]\n"public_url"'
        )
    )
    with serving(config, tmp_path / "data") as running:
        headers = {"host": "mcp.example.org", "origin": url}
        async with httpx2.AsyncClient(base_url=running.url, headers=headers, timeout=60) as http:
            assert (await http.post("/consent", data={"request": "x"})).status_code == 400
            headers = {"origin": "https://evil.example.org"}
            answer = await http.post("/consent", data={"request": "x"}, headers=headers)
            assert answer.status_code == 403


@pytest.mark.thorough
async def test_tokens_are_refreshed_without_the_document_of_the_client(
    flow: Flow, server: Running, documents: DocumentServer, tmp_path: Path
) -> None:
    tokens = await flow.log_in()
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    config = facade_config(tmp_path, server.url, flow.issuer.url)
    documents.status = 404
    try:
        with serving(config, server.data) as other:
            async with httpx2.AsyncClient(base_url=other.url, timeout=60) as http:
                answer = await http.post("/token", data={**form, "client_id": documents.url})
        assert answer.status_code == 200, answer.text
    finally:
        documents.status = 200


async def has_status_of(flow: Flow, token: str, status: int) -> bool:
    return await flow.status(token) == status


async def test_a_revoked_person_is_refused_until_restored(
    flow: Flow, server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = await flow.log_in(sub="frank")
    token = tokens["access_token"]
    assert await flow.status(token) == 200
    person = ["frank", "--issuer", flow.issuer.url, "--data", str(server.data)]

    assert await to_thread.run_sync(main, ["principals", "revoke", *person]) == 0
    await until(partial(has_status_of, flow, token, 401))
    # A stolen refresh token is worth nothing when the person comes back.
    renewed = await flow.refresh(tokens["refresh_token"])
    assert (renewed.status_code, renewed.json()["error"]) == (400, "invalid_grant")
    assert await to_thread.run_sync(main, ["principals", "restore", *person]) == 0
    again = (await flow.log_in(sub="frank"))["access_token"]
    await until(partial(has_status_of, flow, again, 200))
    capsys.readouterr()
