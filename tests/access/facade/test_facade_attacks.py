"""Attacks on the authorization server: each of them gets no code and no token."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx2
import pytest
from support.facade_browser import FacadeBrowser, next_url, query_of
from support.facade_flow import ASSERTING, ASSERTING_SECRET, Flow
from support.gateway_process import JSON
from support.selection import matrix
from support.waiting import until

from statehold.access.login_cookies import MAX_ATTEMPTS


@pytest.fixture
async def victim() -> AsyncGenerator[FacadeBrowser]:
    """The browser of another person."""
    opened = FacadeBrowser()
    yield opened
    await opened.aclose()


def refused(answer: httpx2.Response, error: str = "invalid_grant") -> bool:
    return (answer.status_code, answer.json()["error"]) == (400, error)


async def test_a_code_works_once_and_its_second_use_ends_the_login(flow: Flow) -> None:
    code = await flow.code()
    tokens = (await flow.exchange(code)).json()
    assert refused(await flow.exchange(code))
    assert refused(await flow.refresh(tokens["refresh_token"]))
    assert await flow.status(tokens["access_token"]) == 401


async def test_a_code_is_bound_to_its_client_its_redirect_uri_and_its_verifier(flow: Flow) -> None:
    code = await flow.code()
    assert refused(await flow.exchange(code, client_id=await flow.register()))
    other = "http://127.0.0.1:4712/callback"
    assert refused(await flow.exchange(code, redirect_uri=other), "invalid_request")
    assert refused(await flow.exchange(code, code_verifier="x" * 43))
    assert refused(await flow.exchange(code, code_verifier=flow.challenge))
    assert refused(await flow.refresh(code))
    assert (await flow.exchange(code)).status_code == 200


async def test_a_refresh_token_is_bound_to_its_client_and_its_scopes(flow: Flow) -> None:
    token = (await flow.log_in())["refresh_token"]
    assert refused(await flow.refresh(token, client_id=await flow.register()))
    assert refused(await flow.refresh(token, scope="statehold:admin"), "invalid_scope")
    assert refused(await flow.exchange(token))
    assert (await flow.refresh(token)).status_code == 200


@pytest.mark.parametrize(
    "changes",
    matrix(
        {"code_challenge": None},
        {"code_challenge": "short"},
        {"code_challenge_method": "plain"},
        {"response_type": "token"},
        {"scope": "openid"},
        {"resource": "https://other.example.org/mcp"},
        {"state": "x" * 4000},
    ),
)
async def test_a_wrong_request_is_told_to_the_client(flow: Flow, changes: JSON) -> None:
    answer = await flow.browser.get(flow.authorize_url(**changes))
    assert answer.status_code == 302
    query = query_of(answer.headers["location"])
    assert answer.headers["location"].startswith(flow.redirect_uri)
    assert query["error"]
    assert query["iss"] == flow.url
    assert "code" not in query


@pytest.mark.parametrize(
    "changes",
    matrix(
        {"redirect_uri": "https://evil.example.org/back"},
        {"redirect_uri": "http://127.0.0.1:4711/callback/../evil"},
        {"redirect_uri": "http://localhost:4711/callback"},
        {"redirect_uri": None},
        {"client_id": "unknown"},
        {"client_id": "http://10.0.0.1/client.json"},
        {"client_id": "https://169.254.169.254/client.json"},
        {"client_id": "shc_!"},
        {"client_id": "shc_e30"},
    ),
)
async def test_a_request_of_an_unknown_client_or_redirect_uri_leads_nowhere(
    flow: Flow, changes: JSON
) -> None:
    answer = await flow.browser.get(flow.authorize_url(**changes))
    assert answer.status_code == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "uri",
    matrix(
        "cursor://callback",
        "javascript:alert(1)",
        "http://example.org/back",
        "https://a/#b",
        "https://a@b/",
        "back",
        7,
    ),
)
async def test_an_unprotected_redirect_uri_is_left_out_and_refused_alone(
    flow: Flow, uri: object
) -> None:
    answer = await flow.http.post("/register", json={"redirect_uris": [uri]})
    assert refused(answer, "invalid_redirect_uri")
    assert answer.json()["error_description"].startswith(str(uri)[:4])
    good = ["https://www.example.com/oauth/callback", "http://localhost:8787/callback"]
    answer = await flow.http.post("/register", json={"redirect_uris": [uri, *good]})
    assert answer.status_code == 201
    assert answer.json()["redirect_uris"] == good
    flow.client_id = answer.json()["client_id"]
    for each, status in ((str(uri), 400), (good[0], 302), ("http://localhost:99/callback", 302)):
        answer = await flow.browser.get(flow.authorize_url(redirect_uri=each))
        assert answer.status_code == status, each


@pytest.mark.parametrize(
    "resource",
    matrix(
        "https://evil.example.org/mcp",
        "{url}.evil.example.org/mcp",
        "{url}/other",
        "{url}/mcp?x=1",
        "{url}/s//mcp",
        "{url}/mcp//",
        "",
    ),
)
async def test_no_token_is_given_for_a_foreign_resource(flow: Flow, resource: str) -> None:
    foreign = resource.format(url=flow.url)
    code = await flow.code()
    assert refused(await flow.exchange(code, resource=foreign), "invalid_target")
    tokens = (await flow.exchange(code, resource=f"{flow.url}/s/desk/mcp/")).json()
    several = {"resource": [f"{flow.url}/mcp", foreign], "client_id": flow.client_id}
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], **several}
    assert refused(await flow.http.post("/token", data=form), "invalid_target")
    assert (await flow.refresh(tokens["refresh_token"])).status_code == 200


@pytest.mark.parametrize(
    "path", matrix("/mcp/", "", "/", "/mcp", "/sse", "/s/desk/mcp", "/s/desk/mcp/")
)
async def test_each_spelling_of_the_address_is_our_resource(flow: Flow, path: str) -> None:
    answer = await flow.browser.get(flow.authorize_url(resource=f"{flow.url}{path}"))
    assert answer.headers["location"].startswith(f"{flow.url}/consent?")


@pytest.mark.parametrize("body", matrix(b"{", b"[]", b"[" * 20_000, b"x" * 70_000))
async def test_a_registration_without_metadata_is_refused(flow: Flow, body: bytes) -> None:
    assert (await flow.http.post("/register", content=body)).status_code in (400, 413)


async def test_consent_needs_the_browser_that_saw_the_page(
    flow: Flow, victim: FacadeBrowser
) -> None:
    location = (await flow.browser.get(flow.authorize_url())).headers["location"]
    sealed = query_of(location)["request"]
    consent = f"{flow.url}/consent"
    assert (await victim.post(consent, {"request": sealed, "decision": "allow"})).status_code == 400
    page = await flow.browser.get(location)
    own = await victim.get(location)
    # The page of another browser has the same request, and a value that is not of this cookie.
    assert (await flow.browser.consent(own)).status_code == 400
    attacker = FacadeBrowser()
    attacker.cookies = victim.cookies
    allowed = await flow.browser.consent(page)
    assert "/authorize?" in next_url(allowed)
    # The value in the page of another browser, and one that was used.
    for value in (page, own):
        forged = FacadeBrowser()
        forged.cookies = flow.browser.cookies
        assert (await forged.consent(value)).status_code == 400
        await forged.aclose()
    await attacker.aclose()


async def test_a_browser_keeps_the_cookies_of_the_newest_logins(flow: Flow) -> None:
    pages: list[httpx2.Response] = []
    for _ in range(MAX_ATTEMPTS + 1):
        location = (await flow.browser.get(flow.authorize_url())).headers["location"]
        pages.append(await flow.browser.get(location))
    [cookies] = flow.browser.cookies.values()
    assert len(cookies) == MAX_ATTEMPTS
    assert (await flow.browser.consent(pages[0])).status_code == 400
    for page in (pages[1], pages[-1]):
        assert "/authorize?" in next_url(await flow.browser.consent(page))
    assert len(cookies) == MAX_ATTEMPTS


@pytest.mark.thorough
async def test_the_pages_of_consent_leave_the_cookies_of_the_console(flow: Flow) -> None:
    names = (
        "__Host-statehold",
        "__Host-statehold-guest",
        "__Host-statehold-attempt-0123456789abcdef",
    )
    location = (await flow.browser.get(flow.authorize_url())).headers["location"]
    await flow.browser.get(location)
    [cookies] = flow.browser.cookies.values()
    cookies |= dict.fromkeys(names, "x")
    for _ in range(MAX_ATTEMPTS):
        location = (await flow.browser.get(flow.authorize_url())).headers["location"]
        await flow.browser.get(location)
    assert set(names) <= set(cookies)
    assert len(cookies) == MAX_ATTEMPTS + len(names)


async def test_the_issuer_cannot_be_reached_without_consent(flow: Flow) -> None:
    """The confused deputy: the issuer may remember its own consent to Statehold."""
    location = (await flow.browser.get(flow.authorize_url())).headers["location"]
    sealed = query_of(location)["request"]
    for state in ("", "x" * 43, sealed):
        query = urlencode({"code": "1", "state": state, "iss": flow.issuer.url})
        answer = await flow.browser.get(f"{flow.url}/callback?{query}")
        assert answer.status_code == 400
        assert "location" not in answer.headers
    assert flow.issuer.requests["/token"] == 0 or flow.issuer.requests["/authorize"] == 0


async def test_the_login_of_a_victim_does_not_follow_the_consent_of_an_attacker(
    flow: Flow, victim: FacadeBrowser
) -> None:
    await flow.go_to_issuer()
    flow.sign(sub="victim")
    query = urlencode({"code": "1", "state": flow.sent["state"], "iss": flow.issuer.url})
    answer = await victim.get(f"{flow.url}/callback?{query}")
    assert answer.status_code == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "changes",
    matrix(
        {"state": "x" * 43},
        {"state": None},
        {"iss": "https://other.example.org"},
        {"iss": None},
        {"code": None},
        {"error": "access_denied"},
    ),
)
async def test_a_forged_answer_of_the_issuer_gives_no_code(flow: Flow, changes: JSON) -> None:
    await flow.go_to_issuer()
    flow.sign()
    before = flow.issuer.requests["/token"]
    answer = await flow.come_back(**changes)
    assert answer.status_code in (400, 403)
    assert "location" not in answer.headers
    assert flow.issuer.requests["/token"] == before


@pytest.mark.parametrize(
    "changes",
    matrix(
        {"nonce": "x" * 43},
        {"nonce": None},
        {"aud": "other"},
        {"aud": ["other", "facade:1"]},
        {"iss": "https://other.example.org"},
        {"exp": 1_000_000_000},
        {"sub": None},
        {"algorithm": "none"},
        {"header": {"typ": "at+jwt"}},
        {"header": {"typ": "oauth-id-jag+jwt"}},
    ),
)
async def test_a_forged_id_token_gives_no_code(flow: Flow, changes: JSON) -> None:
    await flow.go_to_issuer()
    flow.sign(**changes)
    answer = await flow.come_back()
    assert answer.status_code == 403
    assert "location" not in answer.headers


async def test_the_answer_of_the_issuer_works_once(flow: Flow) -> None:
    await flow.go_to_issuer()
    flow.sign()
    assert (await flow.come_back()).status_code == 302
    assert (await flow.come_back()).status_code == 400


@pytest.mark.thorough
async def test_an_issuer_that_does_not_answer_gives_no_code(flow: Flow) -> None:
    await flow.go_to_issuer()
    flow.issuer.answers["/token"] = (500, {}, b"")
    assert (await flow.come_back()).status_code == 503


@pytest.mark.parametrize("part", matrix("sealed", "login"))
async def test_a_changed_token_is_refused(flow: Flow, part: str) -> None:
    tokens = await flow.log_in()
    if part == "sealed":
        text = tokens["access_token"]
        changed = text[:40] + ("A" if text[40] != "A" else "B") + text[41:]
        assert await flow.status(changed) == 401
        assert await flow.status("sho_") == 401
        return
    login, _, secret = tokens["refresh_token"].partition(".")
    assert refused(await flow.refresh(f"{'A' * len(login)}.{secret}"))
    assert refused(await flow.refresh(login))
    assert (await flow.refresh(tokens["refresh_token"])).status_code == 200


def assertion(flow: Flow, **changes: Any) -> str:
    now = int(time.time())
    claims = {
        "iss": flow.issuer.url,
        "aud": flow.url,
        "sub": "alice",
        "client_id": ASSERTING,
        "resource": f"{flow.url}/mcp",
        "scope": "statehold:use",
        "jti": base64.urlsafe_b64encode(json.dumps(time.time_ns()).encode()).decode(),
        "iat": now,
        "exp": now + 120,
    }
    header = {"typ": "oauth-id-jag+jwt"} | changes.pop("header", {})
    arguments = {key: changes.pop(key) for key in ("algorithm", "key_id") if key in changes}
    claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    return flow.issuer.token(claims, header=header, **arguments)


async def assert_identity(flow: Flow, text: str, **changes: str) -> httpx2.Response:
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "client_id": ASSERTING,
        "client_secret": ASSERTING_SECRET,
        "assertion": text,
        **changes,
    }
    return await flow.http.post("/token", data=form)


async def test_an_identity_assertion_is_exchanged_once(flow: Flow) -> None:
    text = assertion(flow)
    answer = await assert_identity(flow, text)
    assert answer.status_code == 200, answer.text
    tokens = answer.json()
    assert tokens["scope"] == "statehold:read statehold:use"
    assert tokens.get("refresh_token") is None
    assert await flow.status(tokens["access_token"]) == 200
    assert await flow.status(tokens["access_token"], "server_stats") == 403
    assert refused(await assert_identity(flow, text))
    narrow = await assert_identity(flow, assertion(flow), scope="statehold:read statehold:admin")
    assert narrow.json()["scope"] == "statehold:read"


@pytest.mark.parametrize(
    "changes",
    matrix(
        {"header": {"typ": "at+jwt"}},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": None}},
        {"aud": "https://other.example.org"},
        {"aud": None},
        {"client_id": "other"},
        {"client_id": None},
        {"iss": "https://other.example.org"},
        {"resource": "https://other.example.org/mcp"},
        {"resource": None},
        {"sub": None},
        {"jti": None},
        {"exp": 1_000_000_000},
        {"exp": 4_000_000_000},
        {"algorithm": "none"},
    ),
)
async def test_a_wrong_identity_assertion_is_refused(flow: Flow, changes: JSON) -> None:
    assert refused(await assert_identity(flow, assertion(flow, **changes)))


async def test_an_identity_assertion_needs_its_client(flow: Flow) -> None:
    text = assertion(flow)
    assert (await assert_identity(flow, text, client_secret="wrong")).status_code == 401
    registered = await flow.register()
    answer = await assert_identity(flow, text, client_id=registered)
    assert refused(answer, "unsupported_grant_type")
    answer = await assert_identity(flow, text, resource="https://other.example.org/mcp")
    assert refused(answer, "invalid_target")


async def test_no_token_of_the_issuer_gets_in(flow: Flow) -> None:
    await flow.go_to_issuer()
    flow.sign()
    for token in (flow.issuer.token(aud=f"{flow.url}/mcp"), assertion(flow)):
        assert await flow.status(token) == 401


@pytest.mark.parametrize(
    ("end", "secret"),
    matrix(("revoke", "guess"), ("refresh", "x" * 75), ("code", "\u20ac"), ("revoke", "a.b")),
)
async def test_a_secret_that_was_never_given_ends_no_login(
    flow: Flow, end: str, secret: str
) -> None:
    code = await flow.code()
    guess = f"{code.partition('.')[0]}.{secret}"
    if end == "code":
        assert refused(await flow.exchange(guess))
    tokens = (await flow.exchange(code)).json()
    if end == "refresh":
        assert refused(await flow.refresh(guess))
    if end == "revoke":
        form = {"client_id": flow.client_id, "token": guess}
        assert (await flow.http.post("/revoke", data=form)).status_code == 200
    assert await flow.status(tokens["access_token"]) == 200
    assert (await flow.refresh(tokens["refresh_token"])).status_code == 200


@pytest.mark.parametrize("token", matrix("exchanged", "current", "access_token"))
async def test_each_token_of_a_login_revokes_it(flow: Flow, token: str) -> None:
    first = await flow.log_in()
    second = (await flow.refresh(first["refresh_token"])).json()
    revoked = {
        "exchanged": first["refresh_token"],
        "current": second["refresh_token"],
        "access_token": second["access_token"],
    }[token]
    form = {"client_id": flow.client_id, "token": revoked}
    assert (await flow.http.post("/revoke", data=form)).status_code == 200
    assert refused(await flow.refresh(second["refresh_token"]))


@pytest.mark.thorough
@pytest.mark.parametrize("guess", ["x.y", "{login}." + "y" * 43, "{login}." + "y" * 75])
async def test_guesses_wait_and_a_right_token_of_the_same_address_does_not(
    flow: Flow, guess: str
) -> None:
    token = (await flow.log_in())["refresh_token"]
    text = guess.format(login=token.partition(".")[0])
    answers: list[int] = []

    async def send() -> None:
        answers.append((await flow.refresh(text)).status_code)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(90):
                tasks.start_soon(send)
            await until(lambda: answers)
            assert (await flow.refresh(token)).status_code == 200
            assert len(answers) < 90
            tasks.cancel_scope.cancel()
    # On a slow machine some wait for longer than a guess may.
    assert 400 in answers
    assert set(answers) <= {400, 503}
