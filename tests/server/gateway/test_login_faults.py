"""Logins whose authorization server, service or store fails for a while, or answers with nonsense."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp.shared.auth import AuthorizationCodeResult
from support.fork_server import ForkServer
from support.gateway_process import Way, code_of, opened_session, serving, text_of
from support.guarded_service import Guarded, guarded, whoami
from support.waiting import until

from statehold.sessions.clock import ManualClock
from statehold.sessions.errors import ServiceUnavailable, StoreUnavailable
from statehold.sessions.store.base import LoginRecord
from statehold.sessions.store.sql import SQLStore
from statehold.tools.logins.audit import LoginAudit
from statehold.tools.logins.masked_response import masked
from statehold.tools.upstream.config import LoginSettings, UpstreamConfig
from statehold.tools.upstream.oauth.authorization import Person, log_in
from statehold.tools.upstream.oauth.bearer_auth import BearerAuth, TokenUnavailable
from statehold.tools.upstream.oauth.logins import PAUSE_SECONDS, Bearer, ServiceLogins

LIFE = 3600
OAUTH_ERROR = {"status_code": 400, "media_type": "application/json"}


class Ada:
    """The login of a person at a service, in the store of the test, whose clock it moves."""

    def __init__(self, service: Guarded, store: SQLStore) -> None:
        self.service = service
        self.store = store
        self.clock = ManualClock()
        self.logins = ServiceLogins(store, self.clock, LoginAudit(None, self.clock))
        self.config = UpstreamConfig(url=service.url)

    async def log_in(self) -> None:
        returned: list[AuthorizationCodeResult] = []

        async def show(address: str) -> None:
            async with httpx2.AsyncClient() as browser:
                query = httpx2.URL((await browser.get(address)).headers["location"]).params
            code, state, issuer = (query.get(name) for name in ("code", "state", "iss"))
            returned.append(AuthorizationCodeResult(code=code or "", state=state, iss=issuer))

        async def wait() -> AuthorizationCodeResult:
            return returned.pop()

        person = Person("http://127.0.0.1/callback", show, wait)
        document = await log_in(self.service.url, LoginSettings(), person)
        await self.logins.put("ada", "notes", document)

    async def bearer(self, refused: Bearer | None = None, *, is_invalid: bool = False) -> Bearer:
        bearer = await self.logins.bearer(
            "ada", "notes", self.config, but=refused, is_invalid=is_invalid
        )
        assert bearer is not None
        return bearer

    async def request(self) -> int:
        """Send a request to the service; return the status of its answer."""
        auth = BearerAuth(self.logins, "ada", "notes", self.config)
        async with httpx2.AsyncClient(auth=auth) as http:
            return (await http.post(self.service.url)).status_code

    async def record(self) -> LoginRecord:
        [record] = await self.store.logins.page()
        return record


@asynccontextmanager
async def logged_in(service: Guarded) -> AsyncGenerator[Ada]:
    async with SQLStore.memory() as store:
        ada = Ada(service, store)
        await ada.log_in()
        yield ada


async def test_a_call_without_its_token_is_not_sent_and_the_connection_lives(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--seconds", "1", "--answers") as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "legacy", service.config, service.data, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                assert await whoami(client, session) == "logged in"
                service.answer("/token", status_code=503)

                async def failed() -> str | None:
                    result = await client.call_tool("whoami", {"session_id": session})
                    if not result.is_error:
                        return None
                    assert code_of(result) == "service_unavailable"
                    return text_of(result)

                assert "cannot be used now" in str(await until(failed))
                assert "cannot be used now" in str(await failed())
                service.answer()

                async def is_answered() -> bool:
                    result = await client.call_tool("whoami", {"session_id": session})
                    # A note in the result would say that the connection was replaced.
                    return text_of(result) == "logged in"

                await until(is_answered)
        assert [each["state"] for each in service.logins()] == ["ok"]


async def test_no_request_goes_without_the_token_of_a_login_that_cannot_be_read(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object) -> None:
        raise StoreUnavailable("the disk is full")

    with guarded(tmp_path, fork_server, "--answers") as service:
        async with logged_in(service) as ada:
            service.answer("/mcp", status_code=202)
            assert await ada.request() == 202
            ada.clock.advance(2)
            monkeypatch.setattr(ada.store.logins, "find", fail)
            with pytest.raises(TokenUnavailable, match="the disk is full"):
                await ada.request()
        assert [each["event"] for each in service.log()].count("/mcp") == 1


async def test_a_token_is_used_while_it_lives_and_failed_renewals_pause(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--answers") as service:
        async with logged_in(service) as ada:
            first = await ada.bearer()
            service.answer("/token", status_code=500)
            ada.clock.advance(LIFE - 10)
            assert (await ada.bearer()).token == first.token
            ada.clock.advance(10)
            refused: list[ServiceUnavailable] = []

            async def ask() -> None:
                with pytest.raises(ServiceUnavailable) as raised:
                    await ada.bearer()
                refused.append(raised.value)

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(ask)
            assert len(refused) == 20
            assert service.events().count("/token") == 2
            service.answer()
            ada.clock.advance(PAUSE_SECONDS)
            assert (await ada.bearer()).token != first.token


@pytest.mark.parametrize(
    "answer",
    [
        {"content": "<html>", "status_code": 200, "media_type": "text/html"},
        {"status_code": 302, "headers": {"location": "/elsewhere"}},
        {"status_code": 403},
        {"status_code": 404},
        {"content": '{"error": "temporarily_unavailable"}', **OAUTH_ERROR},
        {"content": '{"access_token": "a b\\nc", "token_type": "Bearer"}', "status_code": 200},
    ],
    ids=["page", "redirect", "forbidden", "absent", "temporary", "token"],
)
async def test_only_a_refusal_of_the_grant_or_the_client_ends_a_login(
    tmp_path: Path, fork_server: ForkServer, answer: dict[str, object]
) -> None:
    with guarded(tmp_path, fork_server, "--answers") as service:
        async with logged_in(service) as ada:
            service.answer("/token", **answer)  # pyright: ignore[reportArgumentType]
            ada.clock.advance(LIFE)
            with pytest.raises(ServiceUnavailable) as raised:
                await ada.bearer()
            assert "a b" not in str(raised.value)
            record = await ada.record()
            assert (record.state, record.lease_ends_at) == ("ok", 0)
            service.answer("/token", '{"error": "invalid_grant"}', **OAUTH_ERROR)
            ada.clock.advance(PAUSE_SECONDS)
            assert await ada.logins.bearer("ada", "notes", ada.config) is None
            assert (await ada.record()).state == "needs_human"


async def test_a_stray_refusal_does_not_end_a_login_that_cannot_be_renewed(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--answers", "--no-refresh") as service:
        async with logged_in(service) as ada:
            challenge = {"www-authenticate": "Bearer"}
            service.answer("/mcp", status_code=401, headers=challenge)
            assert await ada.request() == 401
            assert (await ada.record()).state == "ok"
            challenge["www-authenticate"] = 'Bearer error="invalid_token"'
            service.answer("/mcp", status_code=401, headers=challenge)
            assert await ada.request() == 401
            assert (await ada.record()).state == "needs_human"


async def test_a_service_that_refuses_every_token_costs_one_renewal_a_minute(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--answers") as service:
        async with logged_in(service) as ada:
            service.answer("/mcp", status_code=401)
            for _ in range(5):
                assert await ada.request() == 401
            assert service.events().count("refreshed") == 1
            ada.clock.advance(60)
            assert await ada.request() == 401
        assert service.events().count("refreshed") == 2


@pytest.mark.parametrize("stated", ["0", "-1"])
async def test_a_life_that_is_over_at_its_begin_is_unknown(
    tmp_path: Path, fork_server: ForkServer, stated: str
) -> None:
    with guarded(tmp_path, fork_server, f"--stated={stated}") as service:
        async with logged_in(service) as ada:
            tokens = {(await ada.bearer()).token for _ in range(5)}
            assert (len(tokens), (await ada.record()).expires_at) == (1, None)


@pytest.mark.parametrize("life", [10**12, 10**400])
async def test_a_life_without_end_can_be_shown(
    tmp_path: Path, fork_server: ForkServer, life: int
) -> None:
    with guarded(tmp_path, fork_server, "--answers") as service:
        async with logged_in(service) as ada:
            tokens = {"access_token": "new", "token_type": "Bearer", "expires_in": life}
            service.answer("/token", json.dumps(tokens))
            ada.clock.advance(LIFE)
            assert (await ada.bearer()).token == "new"
            expires_at = (await ada.record()).expires_at
            assert expires_at == ada.clock.now() + 10 * 365 * 86400


async def test_a_login_that_cannot_be_stored_is_not_shown_as_done(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    """The key of the logins is empty, as after a crash of the machine."""

    def visit(address: str) -> None:
        with httpx2.Client(follow_redirects=True, timeout=30) as browser:
            page = browser.get(address)
        assert (page.status_code, "Not logged in" in page.text) == (502, True), page.text

    with guarded(tmp_path, fork_server) as service:
        service.data.mkdir()
        (service.data / "logins.key").touch()
        code, errors = await anyio.to_thread.run_sync(partial(service.add, visit=visit))
        assert (code, "Traceback" in errors, "cannot be stored" in errors) == (1, False, True)
        (service.data / "logins.key").unlink()
        assert await anyio.to_thread.run_sync(service.add) == (0, "")
        (service.data / "logins.key").write_text("")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect() as client:
                result = await client.call_tool(
                    "whoami", {"session_id": await opened_session(client)}
                )
                assert "the key has 0 characters" in text_of(result)


async def test_a_key_of_the_logins_is_the_same_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder, and on a file system without hard links."""

    def refuse(file: Path, target: Path) -> None:
        raise PermissionError

    async def seal(store: SQLStore) -> None:
        sealed.append(await store.logins.seal("ada", "notes", "secret"))

    sealed: list[bytes] = []
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    async with (
        SQLStore.memory() as memory,
        SQLStore.sqlite(tmp_path) as one,
        SQLStore.sqlite(tmp_path) as other,
    ):
        for stores in ((memory, memory), (one, other)):
            async with anyio.create_task_group() as tasks:
                for store in stores:
                    tasks.start_soon(seal, store)
            for _ in stores:
                login = LoginRecord("ada", "notes", "oauth", "", "", "ok", 1e9, sealed.pop())
                assert await stores[0].logins.open(login) == b"secret"
    assert "logins.key" in os.listdir(tmp_path)


async def test_a_renewal_is_stored_also_if_its_caller_leaves_when_it_has_the_lease(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded(tmp_path, fork_server) as service:
        async with logged_in(service) as ada:
            first = await ada.bearer()
            lease = ada.store.logins.lease
            ada.clock.advance(LIFE)
            with anyio.CancelScope() as caller:

                async def leave(*args: object) -> bool:
                    is_leased = await lease(*args)  # pyright: ignore[reportArgumentType]
                    caller.cancel()
                    await anyio.lowlevel.checkpoint()
                    return is_leased

                monkeypatch.setattr(ada.store.logins, "lease", leave)
                await ada.bearer()
            assert (await ada.record()).lease_ends_at == 0
            assert (await ada.bearer()).token != first.token
        assert service.events().count("refreshed") == 1


async def test_a_stream_hides_a_token_that_is_newer_than_its_request(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server) as service:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with SQLStore.memory() as store, listener, anyio.create_task_group() as tasks:
            ada = Ada(service, store)

            async def answer(stream: SocketStream) -> None:
                async with stream:
                    await stream.receive()
                    await ada.log_in()
                    token = (await ada.bearer()).token
                    await stream.send(f"HTTP/1.1 200 OK\r\n\r\ntoken: {token}".encode())

            tasks.start_soon(listener.serve, answer)
            url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            auth = BearerAuth(ada.logins, "ada", "notes", ada.config)
            async with httpx2.AsyncClient(auth=auth) as http, http.stream("GET", url) as response:
                assert await masked(response).aread() == b"token: [login]"
            tasks.cancel_scope.cancel()
