"""The loopback port of the console in processes whose own port a browser cannot use."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import anyio.to_thread
import httpx2
import pytest
from support.console_client import console_address, console_client, operator
from support.gateway_process import (
    opened_session,
    service,
    structured,
    toml,
)
from support.selection import matrix
from support.shared_clients import SharedClients
from support.waiting import until


@pytest.mark.thorough
async def test_a_background_server_opens_a_port_when_it_is_asked(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    clients = SharedClients(config, tmp_path / "data")
    try:
        async with clients.connect() as client:
            session = await opened_session(client)
            ask = {"session_id": session, "reason": "look", "wait_seconds": 0}
            before = structured(await client.call_tool("session_request_human", ask))
            assert before["address"] == f"statehold sessions open {session}"
            first, second = console_address(clients.data), console_address(clients.data)
            url = first.partition("/console")[0]
            assert url.startswith("http://127.0.0.1:")
            assert second.partition("/console")[0] == url
            assert first != second
            after = structured(await client.call_tool("session_request_human", ask))
            assert after["address"] == f"{url}/console#/s/{session}"
            async with operator(clients.data) as person:
                listed = (await person.get("/sessions"))["sessions"]
                assert [each["session_id"] for each in listed] == [session]
                await person.act(session, "pause")
                async with person.events() as events, httpx2.AsyncClient(base_url=url) as other:
                    foreign = {"origin": "https://evil.test"}
                    assert (await other.get("/console", headers=foreign)).status_code == 403
                    rebound = {"host": "evil.test"}
                    assert (await other.get("/console", headers=rebound)).status_code == 421
                    assert (await other.post("/mcp", json={})).status_code == 404
                    # The open stream does not keep the server from its end.
                    await anyio.to_thread.run_sync(clients.stop)
                    while await events.line() is not None:
                        pass
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
            socket.create_connection(("127.0.0.1", port), 1).close()
    finally:
        clients.stop()


@pytest.mark.parametrize("end", matrix("kill", "stop"))
async def test_the_next_server_serves_the_console_at_the_same_address(
    tmp_path: Path, end: str
) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    clients = SharedClients(config, tmp_path / "data")
    try:
        async with clients.connect() as client:
            session = await opened_session(client)
            url = console_address(clients.data).partition("/console")[0]
            async with operator(clients.data) as person:
                cookie, csrf = person.cookie, person.csrf
        if end == "kill":
            os.kill(clients.servers()[0], signal.SIGKILL)
        else:
            await anyio.to_thread.run_sync(clients.stop)
        async with clients.connect() as client, console_client(url) as page:
            page.cookie = cookie

            async def is_back() -> bool:
                try:
                    return (await page.get("/me"))["csrf"] == csrf
                except httpx2.TransportError:
                    return False

            await until(is_back)
            listed = (await page.get("/sessions"))["sessions"]
            assert [each["session_id"] for each in listed] == [session]
            assert console_address(clients.data).partition("/console")[0] == url
    finally:
        clients.stop()


@pytest.mark.thorough
async def test_a_port_that_another_program_took_gives_way_to_a_free_one(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    clients = SharedClients(config, tmp_path / "data")
    try:
        with socket.create_server(("127.0.0.1", 0)) as other:
            clients.data.mkdir()
            taken = other.getsockname()[1]
            (clients.data / "console.port").write_text(str(taken))
            async with clients.connect():
                url = console_address(clients.data).partition("/console")[0]
                assert url.startswith("http://127.0.0.1:")
                assert not url.endswith(f":{taken}")
    finally:
        clients.stop()


@pytest.mark.thorough
async def test_an_open_console_keeps_a_background_server(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"server": {"linger_seconds": 0}, "services": {}}))
    clients = SharedClients(config, tmp_path / "data")
    try:
        async with (
            clients.piped() as client,
            operator(clients.data) as person,
            person.events() as events,
        ):
            await client.stdin.aclose()
            assert await client.process.wait() == 0
            # The server looks every tenth of a second.
            with anyio.move_on_after(1) as scope:
                await events.line()
            assert scope.cancelled_caught
            await person.post("/logout")
            await events.end()
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(clients.wait_ended)
    finally:
        clients.stop()
