"""The end of a login by its revocation, its entries in the audit log, its masks, and the login of a client by itself."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from support.fork_server import ForkServer
from support.gateway_process import Way, opened_session, serving, text_of
from support.guarded_service import Guarded, guarded, log_in, whoami
from support.token_file import write_tokens
from support.waiting import until

ALICE = "alice-token-0123456789"
MACHINE = {
    "grant": "client_credentials",
    "client_id": "machine",
    "client_secret": "secret-of-the-machine",
}


@pytest.mark.parametrize("revokes", [True, False])
async def test_nothing_uses_a_revoked_login_until_its_person_logs_in_again(
    tmp_path: Path, fork_server: ForkServer, revokes: bool
) -> None:
    options = ["--revokes"] if revokes else []
    with guarded(tmp_path, fork_server, *options, audit="required") as service:
        assert service.run("revoke", "notes").returncode == 3
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                for _ in range(2):
                    assert await whoami(client, session) == "logged in"
                revoked = await anyio.to_thread.run_sync(service.run, "revoke", "notes")
                assert revoked.returncode == (0 if revokes else 1), revoked.stderr
                assert "is revoked" in revoked.stdout
                assert revokes or "has no revocation endpoint" in revoked.stderr

                async def is_refused() -> bool:
                    refused = await client.call_tool("whoami", {"session_id": session})
                    return refused.is_error is True and "/login/" in text_of(refused)

                await until(is_refused)
                assert [each["state"] for each in service.logins()] == ["revoked"]
        kinds = [each["kind"] for each in service.log() if each["event"] == "revoked"]
        assert kinds == (["RefreshToken", "AccessToken"] if revokes else [])
        assert service.audit() == ["grant ok", "use ok", "revoke ok", "refuse revoked"]
        assert service.run("add", "notes", "--key", typed="a-key-0123456789").returncode == 2
        assert service.add() == (0, "")
        assert [each["state"] for each in service.logins()] == ["ok"]
        assert service.run("forget", "notes").returncode == 0
        assert service.audit()[-1] == "forget ok"
        # A login of another kind is not replaced.
        assert service.run("add", "notes", "--key", typed="a-key-0123456789").returncode == 0
        assert "login of another kind" in service.add()[1]
        assert [each["kind"] for each in service.logins()] == ["key"]


async def test_renewals_and_refusals_are_in_the_audit_log(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--seconds", "1", audit="on") as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)

                async def is_renewed() -> bool:
                    assert await whoami(client, session) == "logged in"
                    return "refreshed" in service.events()

                await until(is_renewed)
                forgotten = await anyio.to_thread.run_sync(service.run, "forget", "notes")
                assert forgotten.returncode == 0

                async def is_refused() -> bool:
                    return (await client.call_tool("whoami", {"session_id": session})).is_error

                await until(is_refused)
                assert await is_refused()
        entries = service.audit()
        assert sorted(set(entries)) == [
            "forget ok",
            "grant ok",
            "refuse absent",
            "renew ok",
            "use ok",
        ]
        assert [entries.count(each) for each in ("use ok", "refuse absent")] == [1, 1]
        assert {each["api"]["operation"] for each in service.audit_events()} == {
            f"login.{each}" for each in ("grant", "use", "renew", "refuse", "forget")
        }


async def test_a_token_that_its_service_repeats_is_hidden(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    said: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        said.append(str(message))

    with guarded(tmp_path, fork_server) as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect() as client:
                session = await opened_session(client)
                for kind in ("result", "message", "error"):
                    arguments = {"session_id": session, "way": kind}
                    result = await client.call_tool("echo", arguments, progress_callback=note)
                    said.append(result.model_dump_json())
                history = await client.call_tool("session_history", {"session_id": session})
                said.append(history.model_dump_json())
        assert sum(text.count("[login]") for text in said) >= 4 * 6
        secrets = [token for each in service.log() for token in each.get("tokens", ())]
        assert secrets
        kept = [file.read_bytes() for file in service.data.rglob("*") if file.is_file()]
        seen = b"\n".join([*kept, running.log.encode(), *(text.encode() for text in said)])
        for secret in secrets:
            for before in range(3):
                assert b64encode(b"x" * before + secret.encode())[4:-4] not in seen
            assert secret.encode() not in seen


async def test_a_call_that_needs_more_scopes_has_its_person_log_in_for_all_of_them(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    async def open_address(context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        await anyio.to_thread.run_sync(log_in, params.url)
        return ElicitResult(action="accept")

    with guarded(tmp_path, fork_server, "--more") as service:
        assert service.add() == (0, "")
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect(elicitation_callback=open_address) as client:
                for _ in range(2):
                    text = await whoami(client, await opened_session(client))
                    assert text.startswith("logged in")
        logins = [set(each["scopes"]) for each in service.log() if each["event"] == "authorized"]
        assert logins == [{"notes"}, {"notes", "notes:write"}]


async def test_a_client_logs_itself_in_for_all_principals(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    tokens = write_tokens(tmp_path / "tokens", f"{ALICE} alice\n")
    with guarded(
        tmp_path, fork_server, "--machine", "--seconds", "1", server={"tokens": str(tokens)}
    ) as service:
        service.settings["notes"] = {
            "login": {**MACHINE, "issuer": service.url.removesuffix("mcp")}
        }
        headers = {"authorization": f"Bearer {ALICE}"}
        with serving(service.config, service.data) as running:
            way = Way("http", "modern", service.config, service.data, url=running.url)
            async with way.connect(headers=headers) as client:
                session = await opened_session(client)
                assert await whoami(client, session) == "logged in"

                async def is_renewed() -> bool:
                    assert await whoami(client, session) == "logged in"
                    return service.events().count("machine") >= 2

                await until(is_renewed)
                assert [each["subject"] for each in service.logins()] == ["local"]
                revoked = await anyio.to_thread.run_sync(service.run, "revoke", "notes")
                assert "is revoked" in revoked.stdout

                async def is_refused() -> bool:
                    return (await client.call_tool("whoami", {"session_id": session})).is_error

                await until(is_refused)
        before = service.events().count("machine")
        added = service.run("add", "notes")
        assert (added.returncode, added.stderr) == (0, "")
        assert service.events().count("machine") == before + 1
        service.settings["notes"]["login"]["client_secret"] = "wrong-secret"
        failed = service.run("add", "notes")
        assert (failed.returncode, "invalid_client" in failed.stderr) == (1, True)
        assert "machine:[login]" in failed.stderr


async def test_a_client_without_its_authorization_server_is_refused(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with guarded(tmp_path, fork_server, "--machine") as service:
        service.settings["notes"] = {"login": {**MACHINE, "issuer": "https://other.example"}}
        failed = service.run("add", "notes")
        assert failed.returncode == 1
        assert "machine" not in service.events()
        del service.settings["notes"]["login"]["issuer"]
        assert "needs a `client_id` and an `issuer`" in service.run("add", "notes").stderr


async def test_an_address_with_a_user_keeps_its_password_and_has_no_login(
    tmp_path: Path,
) -> None:
    heads: list[bytes] = []
    arrived = anyio.Event()

    async def refuse(stream: SocketStream) -> None:
        async with stream:
            heads.append(await stream.receive())
            await stream.send(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
            arrived.set()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    service = Guarded(tmp_path, f"http://ada:pass-0123456789@127.0.0.1:{port}/mcp")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        with serving(service.config, service.data), anyio.fail_after(30):
            await arrived.wait()
        tasks.cancel_scope.cancel()
    basic = b64encode(b"ada:pass-0123456789")
    assert b"authorization: basic " + basic.lower() in heads[0].lower()
    refused = service.run("add", "notes")
    assert "have credentials" in refused.stderr
    assert "pass-0123456789" not in refused.stderr
