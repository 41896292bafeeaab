"""A running server while its issuer is down, answers badly, and changes its keys."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx2
import pytest
from support.gateway_process import JSON, Running, modern_call, service, serving, toml
from support.hostile_issuer import AUDIENCE, HostileIssuer, hostile_issuer
from support.waiting import until

METADATA, KEYS = "/.well-known/openid-configuration", "/jwks"
DOWN: tuple[int, dict[str, str], bytes] = 503, {}, b""


def settings_of(issuer: HostileIssuer) -> JSON:
    return {
        "server": {"public_url": "https://mcp.example.org"},
        "auth": {"issuers": [{"issuer": issuer.url}], "audience": [AUDIENCE]},
        "services": {"quick": service("quick")},
    }


async def status_of(client: httpx2.AsyncClient, token: str) -> int:
    body, headers = modern_call("session_list", {})
    given = {**headers, "authorization": f"Bearer {token}"}
    answer = await client.post("/mcp", json=body, headers=given)
    if answer.status_code == 503:
        assert int(answer.headers["retry-after"]) > 0
        assert "www-authenticate" not in answer.headers
    return answer.status_code


@pytest.mark.thorough
async def test_a_server_outlives_the_faults_of_its_issuer(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    with hostile_issuer() as issuer:
        config.write_text(toml(settings_of(issuer)))
        issuer.answers[METADATA] = DOWN
        with serving(config, tmp_path / "data") as server:
            async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
                await _start_without_keys(client, issuer)
                await _go_on_without_issuer(client, issuer)
                await _rotate_keys(client, issuer)
            _check_log(server, issuer)


async def test_a_server_warns_at_its_start_of_an_issuer_that_does_not_answer(
    tmp_path: Path,
) -> None:
    config = tmp_path / "statehold.toml"
    with hostile_issuer() as issuer:
        config.write_text(toml(settings_of(issuer)))
        issuer.answers[METADATA] = DOWN
        with serving(config, tmp_path / "data") as server:
            await until(lambda: f"the keys of the issuer {issuer.url}: " in server.log, within=30)
            async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
                del issuer.answers[METADATA]

                async def is_accepted() -> bool:
                    return await status_of(client, issuer.token()) == 200

                await until(is_accepted, within=30)


async def _start_without_keys(client: httpx2.AsyncClient, issuer: HostileIssuer) -> None:
    assert await status_of(client, issuer.token()) == 503
    del issuer.answers[METADATA]
    issuer.answers["/elsewhere"] = 200, {}, b'{"keys": []}'
    bad: list[tuple[int, dict[str, str], bytes]] = [
        (302, {"location": f"{issuer.url}/elsewhere"}, b""),
        (200, {}, b"[" * 100_000_000),
    ]
    for answer in bad:
        issuer.answers[KEYS] = answer
        fetched = issuer.requests[KEYS]
        await until(lambda fetched=fetched: _is_fetched(client, issuer, fetched), within=30)
    assert issuer.requests["/elsewhere"] == 0
    del issuer.answers[KEYS]

    async def is_accepted() -> bool:
        return await status_of(client, issuer.token()) == 200

    await until(is_accepted, within=30)


async def _is_fetched(client: httpx2.AsyncClient, issuer: HostileIssuer, before: int) -> bool:
    assert await status_of(client, issuer.token()) == 503
    return issuer.requests[KEYS] > before


async def _go_on_without_issuer(client: httpx2.AsyncClient, issuer: HostileIssuer) -> None:
    issuer.answers[KEYS] = issuer.answers[METADATA] = DOWN
    for number in range(5):
        assert await status_of(client, issuer.token(sub=f"user-{number}")) == 200
    assert await status_of(client, issuer.token(header={"kid": "unknown"})) in (401, 503)
    del issuer.answers[KEYS], issuer.answers[METADATA]


async def _rotate_keys(client: httpx2.AsyncClient, issuer: HostileIssuer) -> None:
    """Callers with the old key are never refused, and the new one is known within the time between two fetches."""
    issuer.add_key("next")
    is_over = False
    calls = 0

    async def call_with_old_key(caller: int) -> None:
        nonlocal calls
        while not is_over:
            token = issuer.token(sub=f"caller-{caller}", jti=str(calls))
            assert await status_of(client, token) == 200
            calls += 1

    async def is_known() -> bool:
        token = issuer.token(key_id="next", algorithm="ES256", sub="new", jti=str(calls))
        return await status_of(client, token) == 200

    before = issuer.requests[KEYS]
    async with anyio.create_task_group() as tasks:
        for caller in range(4):
            tasks.start_soon(call_with_old_key, caller)
        await until(is_known, within=60)
        is_over = True
    assert calls > 20
    assert issuer.requests[KEYS] - before <= 2


def _check_log(server: Running, issuer: HostileIssuer) -> None:
    assert f"the keys of the issuer {issuer.url}: " in server.log
    assert "unchecked token (" in server.log
    assert "Traceback" not in server.log
