"""Opening and closing a client."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from statehold.client.errors import ServerUnreachable


async def test_nothing_is_left_when_a_client_is_closed(way: Any, leaks: Any) -> None:
    with anyio.fail_after(20):
        async with way() as client:
            s = await client.create(services=["quick"])
            await s.call("inc")
            await s.close()
        await client.aclose()
        await leaks.check()
    with pytest.raises(ServerUnreachable):
        await client.call("inc")
    with pytest.raises(RuntimeError):
        await client.__aenter__()


@pytest.mark.parametrize("way", ["http", "stdio", "embedded"], indirect=True, scope="module")
async def test_a_client_may_be_entered_and_left_in_different_tasks(way: Any, leaks: Any) -> None:
    client = way()

    async def enter() -> None:
        with anyio.move_on_after(20):
            await client.__aenter__()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
    async with client.session(services=["quick"]) as s:
        assert (await s.call("inc")).text == "1"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.aclose)
    await leaks.check()
