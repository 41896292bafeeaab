"""Logins at several processes of one store: they hold at each, end at each, and outlive each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.console_client import ConsoleClient, console_address, console_client, operator
from support.gateway_process import Running, Way, opened_session, service, serving, toml


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Running, Running]]:
    """Two servers on one data folder."""
    folder = tmp_path_factory.mktemp("pair")
    config, data = folder / "statehold.toml", folder / "data"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    with serving(config, data) as first, serving(config, data) as second:
        yield first, second


@asynccontextmanager
async def same_browser(person: ConsoleClient, url: str) -> AsyncGenerator[ConsoleClient]:
    """The requests of a browser to another server. Its cookie is that of the host, whatever the port."""
    async with console_client(url) as other:
        other.cookie, other.csrf = person.cookie, person.csrf
        yield other


@pytest.mark.thorough
async def test_one_of_two_browsers_gets_in_with_a_code(pair: tuple[Running, Running]) -> None:
    first, second = pair
    for _ in range(5):
        code = console_address(first.data).partition("#code=")[2]
        statuses: list[int] = []

        async def log_in(url: str, code: str, statuses: list[int]) -> None:
            async with console_client(url) as client:
                response = await client.send("POST", "/login", {"code": code})
                statuses.append(response.status_code)

        async with anyio.create_task_group() as tasks:
            for url in (first.url, second.url, first.url, second.url):
                tasks.start_soon(log_in, url, code, statuses)
        assert sorted(statuses) == [200, 401, 401, 401]


@pytest.mark.thorough
async def test_a_login_ends_with_its_streams_at_every_server(
    pair: tuple[Running, Running],
) -> None:
    first, second = pair
    async with operator(first.data, first.url) as person, same_browser(person, second.url) as far:
        assert await far.get("/me") == await person.get("/me")
        async with far.events() as events:
            with anyio.fail_after(1):
                await person.post("/logout")
                await events.end()
        assert (await far.refused("GET", "/me"))["status"] == 401


@pytest.mark.thorough
async def test_a_revoked_guest_is_out_at_every_server(
    pair: tuple[Running, Running], tmp_path: Path
) -> None:
    first, second = pair
    async with (
        Way("http", "modern", tmp_path, first.data, url=first.url).connect() as agent,
        operator(first.data, first.url) as person,
        console_client(second.url) as guest,
    ):
        session = await opened_session(agent)
        link = await person.post(f"/sessions/{session}/shares", link=True)
        await guest.log_in(code=link["code"])
        assert [
            each["used"] for each in (await person.get(f"/sessions/{session}/shares"))["shares"]
        ]
        async with guest.events() as events:
            with anyio.fail_after(1):
                response = await person.send("DELETE", f"/sessions/{session}/shares/{link['id']}")
                assert response.status_code == 200
                await events.end()
        assert (await guest.refused("GET", "/me"))["status"] == 401


@pytest.mark.thorough
async def test_a_logout_everywhere_ends_all_logins_of_the_user_alone(
    pair: tuple[Running, Running], tmp_path: Path
) -> None:
    first, second = pair
    async with (
        Way("http", "modern", tmp_path, first.data, url=first.url).connect() as agent,
        operator(first.data, first.url) as person,
        operator(first.data, second.url) as other,
        console_client(first.url) as guest,
    ):
        session = await opened_session(agent)
        await guest.log_in(
            code=(await person.post(f"/sessions/{session}/shares", link=True))["code"]
        )
        async with other.events() as events:
            with anyio.fail_after(1):
                await person.post("/logout", everywhere=True)
                await events.end()
        for ended in (person, other):
            assert (await ended.refused("GET", "/me"))["code"] == "login_required"
        await guest.get(f"/sessions/{session}")


async def test_a_login_outlives_its_server(tmp_path: Path) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    config.write_text(toml({"services": {"quick": service("asking")}}))
    with serving(config, data) as first:
        async with operator(data) as person:
            before = await person.get("/me")
        first.process.kill()
        first.process.wait(10)
    with serving(config, data) as second:
        async with same_browser(person, second.url) as again:
            assert await again.get("/me") == before
            await again.post("/logout")
