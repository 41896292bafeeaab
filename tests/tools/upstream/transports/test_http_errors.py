"""HTTP errors of an upstream: its words, the remedy that fits, and errors of its address and headers."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest
from callers import Caller, view
from support.odd_http import Response, odd_server, page
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService
from statehold.tools.upstream.transports.http_errors import HttpRefused


def service_at(url: str, **settings: Any) -> UpstreamService:
    return UpstreamService("odd", UpstreamConfig.model_validate({"url": url, **settings}))


async def refused_call(response: Response) -> HttpRefused:
    with odd_server() as odd:
        connection = await service_at(odd.url).open(view(), None)
        odd.refuse = lambda message: response if message.get("method") == "tools/call" else None
        with anyio.fail_after(20), pytest.raises(HttpRefused) as raised:
            await connection.call("inc", {}, Caller())
        odd.refuse = lambda message: None
        await connection.call("inc", {}, Caller())
        await connection.aclose()
    return raised.value


def told(status: int, **body: Any) -> Response:
    return Response(status, json.dumps(body).encode())


SAID = "; it last said: "
WORDS: list[tuple[Response, str]] = [
    (told(402, message="top up at example.org"), "top up at example.org"),
    (Response(503, b"back in a minute\n", "text/plain"), "back in a minute"),
    (told(401, error="invalid_token", error_description="expired at noon"), "expired at noon"),
    (told(404, detail="no such project"), "no such project"),
    (told(422, detail=[{"loc": ["n"], "msg": "n is missing"}]), "n is missing"),
    (told(500, error={"code": 7, "message": "disk is full"}), "disk is full"),
    (told(409, errors=[{"title": "locked"}]), "locked"),
    (Response(451, "für Juristen".encode(), "text/plain; charset=utf-8"), "für Juristen"),
    (Response(400, b'{"title": "bad", "x": 1}', "application/problem+json"), "bad"),
    (page(401, WWW_Authenticate='Bearer error_description="key is revoked"'), "key is revoked"),
    (told(402, detail="x" * 5000), "x" * 300),
    (told(402, detail="one\ntwo"), "one"),
]


@pytest.mark.parametrize(("response", "words"), matrix(*WORDS, quick=3))
async def test_the_words_of_a_refusal_reach_the_caller(response: Response, words: str) -> None:
    error = await refused_call(response)
    assert f"{SAID}{words}" in error.message
    assert len(error.message) < 500
    assert "`url`" not in error.message


@pytest.mark.thorough
@pytest.mark.parametrize(
    "response",
    [
        page(503),
        Response(500, b"\xff\x00", "application/octet-stream"),
        Response(500, b"{"),
        Response(500, b"[]"),
        told(500, trace=1, error={"a": {"b": {"c": {"d": "deep"}}}}),
        Response(500, b"x" * 2**21, "text/html"),
    ],
)
async def test_a_refusal_without_words_quotes_none(response: Response) -> None:
    assert "said" not in (await refused_call(response)).message


async def test_the_words_of_a_refused_connection_reach_the_log_and_hide_secrets() -> None:
    with odd_server() as odd:
        odd.refuse = lambda message: told(401, error_description="hush-hush-1 is not valid")
        headers = {"Authorization": "Bearer hush-hush-1"}
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(odd.url, headers=headers).open(view(), None)
    assert f"{SAID}*** is not valid" in raised.value.message
    assert "check the credentials" in raised.value.message


@pytest.mark.parametrize(
    ("status", "challenge", "is_offered"),
    matrix(
        (401, 'Bearer resource_metadata="https://example.org/.well-known/x"', True),
        (401, 'Bearer error="invalid_token", resource_metadata="https://example.org/x"', True),
        (401, "Bearer", False),
        (
            403,
            'Bearer error="insufficient_scope", resource_metadata="https://example.org/x"',
            True,
        ),
    ),
)
async def test_a_server_with_an_oauth_login_names_the_command_that_logs_in(
    status: int, challenge: str, is_offered: bool
) -> None:
    error = await refused_call(page(status, WWW_Authenticate=challenge))
    assert ("statehold logins add odd" in error.message) == is_offered
    assert "in `headers` of [services.odd]" in error.message


async def test_a_missing_scope_is_named_and_is_not_a_matter_of_hosts() -> None:
    realm = "x" * 1500
    challenge = f'Bearer realm="{realm}", error="insufficient_scope", scope="files:write"'
    error = await refused_call(page(403, WWW_Authenticate=challenge))
    assert "lack a scope" in error.message
    assert "insufficient_scope, scope files:write" in error.message
    assert "allowed-hosts" not in error.message


@pytest.mark.parametrize(
    ("seconds", "words"),
    matrix(
        (2_300_000_000, "26620 days"),
        (90, "90 seconds"),
        (600, "10 minutes"),
        (86400, "24 hours"),
        (0, "0 seconds"),
    ),
)
async def test_a_time_to_wait_is_said_in_words(seconds: int, words: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    due = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    headers = {"Retry-After": due, "Date": format_datetime(now, usegmt=True)}
    error = await refused_call(Response(429, headers=headers))
    assert f"wait {words}" in error.recovery
    assert error.retry_after == seconds


# Addresses and headers.

LOOPS: dict[str, dict[str, str]] = {
    "itself": {"/mcp/": "/mcp/"},
    "empty": {"/mcp/": ""},
    "three": {"/mcp/": "/a", "/a": "/b", "/b": "/a"},
}


@pytest.mark.parametrize(
    ("loop", "status"), matrix(("itself", 307), ("empty", 308), ("three", 308))
)
async def test_redirects_in_a_circle_are_named_and_advise_no_address(
    loop: str, status: int
) -> None:
    with odd_server() as odd:

        def redirect(_method: str, path: str) -> Response | None:
            targets = LOOPS[loop]
            return page(status, Location=targets[path]) if path in targets else None

        odd.redirect = redirect
        with pytest.raises(HttpRefused) as raised:
            await service_at(odd.url, type="http").open(view(), None)
    assert "in a circle" in raised.value.message
    assert "set `url`" not in raised.value.message


@pytest.mark.parametrize("status", matrix(403, 406, 410, 415, 422, 500, 501))
async def test_an_address_that_may_speak_sse_names_the_setting(status: int) -> None:
    with odd_server() as odd:
        odd.refuse = lambda message: page(status)
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(odd.url).open(view(), None)
        assert 'set type = "sse" in [services.odd]' in raised.value.message
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(odd.url, type="http").open(view(), None)
        assert "sse" not in raised.value.message


@pytest.mark.thorough
@pytest.mark.parametrize("status", [401, 402, 429, 503])
async def test_an_address_that_says_why_names_no_other_transport(status: int) -> None:
    with odd_server() as odd:
        odd.refuse = lambda message: page(status)
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(odd.url).open(view(), None)
        assert "sse" not in raised.value.message


async def test_an_address_that_does_not_answer_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        with pytest.raises(ServiceUnavailable) as raised:
            await service_at(url, connect_seconds=0.3).open(view(), None)
    assert 'set type = "sse" in [services.odd]' in raised.value.message


@pytest.mark.parametrize("name", matrix("naïve", "日本", "Ω"))
@pytest.mark.parametrize("path", matrix("mcp", "sse"))
async def test_a_session_name_that_no_header_can_carry_is_told(name: str, path: str) -> None:
    service = service_at(f"http://127.0.0.1:9/{path}", headers={"X-Name": "{session_name}"})
    with pytest.raises(ServiceUnavailable) as raised:
        await service.open(view(name=name), None)
    assert "in the header X-Name" in raised.value.message
