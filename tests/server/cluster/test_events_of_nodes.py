"""Nodes on one database send the events of all: those of a node that was killed too, and each one once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cluster_nodes import Start
from support.event_clients import clients_of, events_settings
from support.event_receiver import SECRET, event_receiver
from support.gateway_process import kill
from support.waiting import until


@pytest.mark.thorough
async def test_the_events_of_a_killed_node_are_sent_by_another(
    start: Start, tmp_path: Path
) -> None:
    server = events_settings(tmp_path / "tokens")["server"]
    paused: list[str] = []
    with (
        event_receiver() as receiver,
        start("a", more={"server": server}) as first,
        start("b", more={"server": server}) as second,
    ):
        target = {"mode": "webhook", "url": receiver.url, "secret": SECRET}
        async with clients_of(first) as (ada, _), clients_of(second) as (same, _):
            await ada.result(
                "events/subscribe", name="session_paused", arguments={}, delivery=target
            )
            for client in (ada, same):
                for _ in range(5):
                    paused.append(await client.open())
                    await client.pause(paused[-1])
            await until(lambda: len(receiver.delivered) == len(paused))
            receiver.status = 503
            for _ in range(5):
                paused.append(await ada.open())
                await ada.pause(paused[-1])
        kill(first)
        receiver.status = 204
        await until(lambda: len({*receiver.ids()}) == len(paused), within=60)
        got = [each.event["data"]["sessionId"] for each in receiver.delivered]
        assert sorted(got) == sorted(paused)
