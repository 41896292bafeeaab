"""Logins at services that ask for OAuth: by the command, with the tokens of the SDK's own authorization server."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from sqlalchemy import Connection
from support.fork_server import ForkServer
from support.gateway_process import (
    JSON,
    Era,
    Way,
    code_of,
    opened_session,
    serving,
    text_of,
)
from support.guarded_service import Guarded, guarded, log_in, target_of, whoami
from support.raw_requests import send
from support.selection import matrix
from support.token_file import write_tokens
from support.waiting import until

from statehold.sessions.clock import ManualClock
from statehold.sessions.store.sql import SQLStore
from statehold.tools.logins.audit import LoginAudit
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.oauth.authorization import LoginDocument
from statehold.tools.upstream.oauth.logins import ServiceLogins

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"


async def test_a_person_logs_in_once_and_every_session_uses_it(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server) as service:
        assert service.add() == (0, "")
        [login] = service.logins()
        assert (login["name"], login["subject"], login["state"]) == ("notes", "local", "ok")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect() as client:
                for _ in range(2):
                    assert await whoami(client, await opened_session(client)) == "logged in"
            assert service.logins()[0]["used_at"] is not None
            assert service.run("forget", "notes").returncode == 0
            async with way.connect() as client:
                session = await opened_session(client)

                async def is_refused() -> bool:
                    refused = await client.call_tool("whoami", {"session_id": session})
                    return refused.is_error is True and "/login/" in text_of(refused)

                await until(is_refused)
        assert service.events().count("authorized") == 1
        assert service.run("forget", "notes").returncode != 0
    stored = b"".join(file.read_bytes() for file in service.data.rglob("*") if file.is_file())
    assert not re.search(rb"[ar]t-[\w-]{30}", stored)
    assert (service.data / "logins.key").stat().st_mode & 0o777 == 0o600


async def test_the_error_of_a_call_has_the_address_at_which_its_user_logs_in(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with (
        guarded(tmp_path, fork_server) as service,
        serving(service.config, service.data) as running,
    ):
        way = Way("http", "modern", service.config, service.data, url=running.url)
        async with way.connect() as client:
            session = await opened_session(client)
            refused = text_of(await client.call_tool("whoami", {"session_id": session}))
            [address, *_] = re.findall(r"http://127\.0\.0\.1:\d+/login/[\w-]+", refused)
            await anyio.to_thread.run_sync(log_in, address)

            async def is_logged_in() -> bool:
                result = await client.call_tool("whoami", {"session_id": session})
                return text_of(result) == "logged in"

            await until(is_logged_in)
            assert httpx2.get(address).status_code == 404
    assert "Traceback" not in running.log


@pytest.mark.parametrize("era", matrix("legacy", "modern", quick=1))
async def test_a_client_is_asked_to_open_the_address_and_the_call_goes_on(
    tmp_path: Path, fork_server: ForkServer, era: Era
) -> None:
    asked: list[str] = []

    async def open_address(context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        asked.append(params.message)
        await anyio.to_thread.run_sync(log_in, params.url)
        return ElicitResult(action="accept")

    async def decline(context: object, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="decline")

    with guarded(tmp_path, fork_server) as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", era, service.config, service.data, url=running.url)
            async with way.connect(elicitation_callback=open_address) as client:
                session = await opened_session(client)
                assert await whoami(client, session) == "logged in"
                assert service.run("forget", "notes").returncode == 0
                async with way.connect(elicitation_callback=decline) as other:

                    async def is_refused() -> bool:
                        result = await other.call_tool("whoami", {"session_id": session})
                        return result.is_error is True and "/login/" in text_of(result)

                    await until(is_refused)
                # The server keeps no MCP session for another login: a note says that the connection was replaced.
                assert (await whoami(client, session)).startswith("logged in\n")
                assert await whoami(client, session) == "logged in"
    assert asked == ["Log in at notes: the call goes on then."]
    assert service.events().count("authorized") == 2


@pytest.mark.parametrize("calls", [10, pytest.param(100, marks=pytest.mark.thorough)])
async def test_processes_renew_a_short_token_in_turns(
    tmp_path: Path, fork_server: ForkServer, calls: int
) -> None:
    """The server ends a login whose refresh token is used twice."""
    with guarded(tmp_path, fork_server, "--seconds", "1") as service:
        assert service.add() == (0, "")
        config = service.config
        with serving(config, service.data) as one, serving(config, service.data) as other:
            async with anyio.create_task_group() as tasks:
                for running in (one, other, one, other):
                    way = Way("http", "modern", config, service.data, url=running.url)

                    async def call(way: Way = way) -> None:
                        async with way.connect() as client:
                            session = await opened_session(client)
                            for _ in range(calls):
                                await whoami(client, session)

                    tasks.start_soon(call)
        events = service.events()
        assert "reused" not in events
        assert events.count("called") == 4 * calls
        assert [each["state"] for each in service.logins()] == ["ok"]


async def test_a_login_is_its_principals_own(tmp_path: Path, fork_server: ForkServer) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{BEN} ben\n")
    with guarded(tmp_path, fork_server, server={"tokens": str(tokens)}) as service:
        assert service.add() == (0, "")  # that of the operator, by which the tools are known
        assert service.add("--subject", "alice") == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect(headers={"authorization": f"Bearer {ALICE}"}) as alice:
                assert await whoami(alice, await opened_session(alice)) == "logged in"
            async with way.connect(headers={"authorization": f"Bearer {BEN}"}) as ben:
                session = await opened_session(ben)
                refused = await ben.call_tool("whoami", {"session_id": session})
                assert code_of(refused) == "service_unavailable"
                assert "HTTP 401" in text_of(refused)


async def test_the_lists_of_a_principals_own_login_are_theirs_alone(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n{BEN} ben\n")
    settings: JSON = {"server": {"tokens": str(tokens)}, "notes": {"era": "modern"}}
    with guarded(tmp_path, fork_server, **settings) as service:
        assert service.add() == (0, "")
        assert service.add("--subject", "alice") == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with (
                way.connect(headers={"authorization": f"Bearer {ALICE}"}) as alice,
                way.connect(headers={"authorization": f"Bearer {BEN}"}) as ben,
            ):
                assert await whoami(alice, await opened_session(alice)) == "logged in"
                for client in (alice, ben):
                    names = {tool.name for tool in (await client.list_tools()).tools}
                    assert ("of_1" in names, "of_2" in names) == (True, False)
                skills = [(await send(each, "skills/list"))["skills"][1:] for each in (alice, ben)]
                found = [[skill["frontmatter"]["name"] for skill in each] for each in skills]
                assert found == [["of-2"], []]
        # Nor does a new process answer with the login of the operator, whatever it is asked first.
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect(headers={"authorization": f"Bearer {ALICE}"}) as alice:
                [_, skill] = (await send(alice, "skills/list"))["skills"]
                assert skill["frontmatter"]["name"] == "of-2"


async def test_a_login_that_cannot_be_renewed_needs_its_person(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--seconds", "1", "--no-refresh") as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)

                async def is_refused() -> bool:
                    return (
                        await client.call_tool("whoami", {"session_id": session})
                    ).is_error is True

                await until(is_refused)
        [login] = service.logins()
        assert (login["state"], login["reason"]) == (
            "needs_human",
            "its token has ended and cannot be renewed",
        )
        assert service.add() == (0, "")
        assert [each["state"] for each in service.logins()] == ["ok"]


async def test_a_token_goes_to_the_address_of_its_login_only(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "other").mkdir()
    with (
        guarded(tmp_path, fork_server) as service,
        guarded(tmp_path / "other", fork_server) as other,
    ):
        assert service.add() == (0, "")
        moved = Guarded(tmp_path, other.url)
        with serving(moved.config, moved.data) as running:
            way = Way("http", "modern", moved.config, moved.data, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                refused = await client.call_tool("whoami", {"session_id": session})
                assert "HTTP 401" in text_of(refused)
        assert "called" not in other.events()


def test_only_the_answer_of_this_login_is_taken(tmp_path: Path, fork_server: ForkServer) -> None:
    def forge(address: str) -> None:
        forged = httpx2.get(f"{target_of(address)}&state=forged", follow_redirects=True)
        assert (forged.status_code, "No login" in forged.text) == (404, True)
        log_in(address)

    def deny(address: str) -> None:
        sent = httpx2.URL(target_of(address)).params
        query = {"error": "access_denied", "error_description": "<b>", "state": sent["state"]}
        denied = httpx2.get(sent["redirect_uri"], params=query)
        assert (denied.status_code, "&lt;b&gt;" in denied.text) == (502, True)

    with guarded(tmp_path, fork_server, audit="on") as service:
        code, errors = service.add(visit=deny)
        assert (code, service.logins()) == (1, [])
        assert "access_denied" in errors
        assert service.audit() == ["refuse failed"]
        assert "Traceback" not in errors
        assert service.add(visit=forge) == (0, "")


def test_a_service_without_a_login_is_told(tmp_path: Path) -> None:
    def fail(address: str) -> None:
        page = httpx2.get(address, timeout=30)
        assert (page.status_code, "asks for no login" in page.text) == (502, True)

    with serving(_empty(tmp_path), tmp_path / "open") as running:
        service = Guarded(tmp_path, f"{running.url}/mcp")
        code, errors = service.add(visit=fail)
    assert code == 1
    assert "asks for no login" in errors


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    def fail(address: str) -> None:
        page = httpx2.get(address, timeout=30)
        assert (page.status_code, "The login failed" in page.text) == (502, True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    code, errors = Guarded(tmp_path, f"http://127.0.0.1:{port}/mcp").add(visit=fail)
    assert code == 1
    assert "The login failed" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("methods", [None, ["plain"], ["plain", "S256"]])
def test_an_authorization_server_without_pkce_gets_no_person(
    tmp_path: Path, fork_server: ForkServer, methods: list[str] | None
) -> None:
    """Its authorization endpoint has a query, which stays."""
    shown: list[str] = []

    supports = methods is not None and "S256" in methods

    def visit(address: str) -> None:
        answer = httpx2.get(address, timeout=30)
        shown.append(answer.headers.get("location", answer.text))
        if supports:
            log_in(address)

    with guarded(tmp_path, fork_server, "--answers") as service:
        site = service.url.removesuffix("mcp")
        metadata = {
            "issuer": site,
            "authorization_endpoint": f"{site}authorize?tenant=1",
            "token_endpoint": f"{site}token",
            "registration_endpoint": f"{site}register",
            "response_types_supported": ["code"],
        }
        if methods is not None:
            metadata["code_challenge_methods_supported"] = methods
        service.answer("/.well-known/oauth-authorization-server", json.dumps(metadata))
        code, errors = service.add(visit=visit)
        if supports:
            assert (code, errors) == (0, "")
            query = httpx2.URL(shown[0]).params
            assert (query["tenant"], query["response_type"]) == ("1", "code")
        else:
            assert (code, "S256" in errors, "S256" in shown[0]) == (1, True, True)


async def test_a_service_without_a_login_costs_one_look_at_the_store_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, looks = ManualClock(), 0
    async with SQLStore.memory() as store:
        read = store.transactions.read

        async def counted(query: Callable[[Connection], Any]) -> Any:
            nonlocal looks
            looks += 1
            return await read(query)

        monkeypatch.setattr(store.transactions, "read", counted)
        logins = ServiceLogins(store, clock, LoginAudit(None, clock))
        site = "https://example.org/mcp?key=secret"
        config = UpstreamConfig(url=site)
        for _ in range(10):
            assert await logins.bearer("ada", "notes", config) is None
        assert looks == 1
        tokens = {"access_token": "a", "token_type": "Bearer"}
        document = {"site": site, "client": {"client_id": "c"}, "tokens": tokens}
        await logins.put("ada", "notes", LoginDocument.model_validate(document))
        bearer = await logins.bearer("ada", "notes", config)
        assert bearer is not None
        assert bearer.token == "a"
        before = looks
        for _ in range(10):
            await logins.bearer("ada", "notes", config)
        assert looks == before
        [stored] = await store.logins.page()
        assert stored.site == "https://example.org"


def _empty(folder: Path) -> Path:
    config = folder / "empty.toml"
    config.write_text("")
    return config
