"""Closing an embedded Statehold while it still reads the lists of its services."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from support.gateway_process import service

from statehold.client import connect, sync
from statehold.client.errors import ServiceUnavailable
from statehold.server.gateway.probing import Probes

STARTING = {"slow": service("bad", "slow-start", "60")}
"""It says nothing for as long as such a test may take."""


async def test_calls_that_wait_for_a_service_are_refused_when_the_client_is_closed(
    leaks: Any,
) -> None:
    refused: list[ServiceUnavailable] = []
    client = connect(services=STARTING)
    async with client:
        session = await client.create()

        async def call() -> None:
            with pytest.raises(ServiceUnavailable) as caught:
                await session.call("inc")
            refused.append(caught.value)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                await client.aclose()
    assert ["stopping" in str(each) for each in refused] == [True] * 3
    with anyio.fail_after(10):
        await leaks.check()


@pytest.mark.thorough
def test_a_program_without_a_loop_can_close_its_client_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting, refused = threading.Event(), list[BaseException]()
    entry = Probes.entry

    async def seen(self: Probes, *arguments: Any) -> Any:
        waiting.set()
        return await entry(self, *arguments)

    monkeypatch.setattr(Probes, "entry", seen)
    client = sync.connect(services=STARTING).__enter__()
    session = client.create()

    def call() -> None:
        try:
            session.call("inc")
        except BaseException as error:
            refused.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert waiting.wait(20)
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    caller.join(20)
    assert [type(each) for each in refused] == [ServiceUnavailable]
