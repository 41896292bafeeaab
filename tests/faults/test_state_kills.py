"""A server that is killed while it changes states: every acknowledged update is there afterwards, and none is half there."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest
from mcp import Client
from support.gateway_process import (
    JSON,
    Running,
    Way,
    opened_session,
    service,
    serving,
    structured,
    toml,
)

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("fork_server")]

CALLERS = 8


class Writer:
    """Updates one session from many callers and keeps the acknowledged numbers: each caller counts up its own key."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.acknowledged: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.version = 0
        self.count = 0
        self.enough = 0
        """The count at which the server is killed."""
        self.has_enough = anyio.Event()

    async def write(self, client: Client, number: int) -> None:
        key = f"caller {number}"
        while True:
            value = self.sent.get(key, 0) + 1
            self.sent[key] = value
            # Two places in one update: one without the other would be half of it.
            values: JSON = {key: value, "same": {key: value}}
            arguments = {"session_id": self.session, "values": values}
            version = structured(await client.call_tool("state_update", arguments))["version"]
            self.acknowledged[key] = value
            self.version = max(self.version, version)
            self.count += 1
            if self.count == self.enough:
                self.has_enough.set()

    async def until_killed(self, way: Way, running: Running, after: int) -> None:
        """Write until the server is killed, which is after so many more updates."""
        self.enough, self.has_enough = self.count + after, anyio.Event()

        async def caller(number: int) -> None:
            try:
                async with way.connect() as client:
                    await self.write(client, number)
            except Exception:
                # The server is gone in the middle of it, and only then.
                if not self.has_enough.is_set():
                    raise

        async with anyio.create_task_group() as tasks:
            for number in range(CALLERS):
                tasks.start_soon(caller, number)
            await self.has_enough.wait()
            running.process.kill()
            tasks.cancel_scope.deadline = anyio.current_time() + 5

    def check(self, content: JSON) -> None:
        value: JSON = content["value"]
        assert content["version"] >= self.version
        for key, acknowledged in self.acknowledged.items():
            assert acknowledged <= value[key] <= self.sent[key]
            assert value["same"][key] == value[key]
        # An update that was sent and not acknowledged may be applied; the callers continue from the current value.
        self.sent = {key: number for key, number in value.items() if key != "same"}


@pytest.mark.timeout(120)
@pytest.mark.thorough
def test_every_acknowledged_update_survives_kill_9(tmp_path: Path) -> None:
    """The server is killed at random moments while eight callers update at once."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("quick")}}))
    moments = random.Random(4)
    writer: Writer | None = None
    for _ in range(3):
        with serving(config, tmp_path / "data") as running:
            way = Way("http", "modern", config, tmp_path / "data", url=running.url)
            writer = anyio.run(_one_life, way, running, writer, moments.randrange(1, 120))
            running.process.wait(10)
    assert writer is not None
    with serving(config, tmp_path / "data") as running:
        way = Way("http", "modern", config, tmp_path / "data", url=running.url)
        anyio.run(_checked, way, writer)
    assert writer.count >= 3


@pytest.mark.thorough
def test_a_call_that_was_answered_is_in_the_history_after_kill_9(tmp_path: Path) -> None:
    """Here the journal is written before the reply."""
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"journal": "sync", "services": {"quick": service("quick")}}))
    session, answered = "", 0
    for _ in range(3):
        with serving(config, tmp_path / "data") as running:
            way = Way("http", "modern", config, tmp_path / "data", url=running.url)
            session, answered = anyio.run(_answered, way, running, session, answered)
            running.process.wait(10)
    with serving(config, tmp_path / "data") as running:
        way = Way("http", "modern", config, tmp_path / "data", url=running.url)
        assert anyio.run(_calls, way, session) == answered == 6


async def _answered(way: Way, running: Running, session: str, before: int) -> tuple[str, int]:
    """Make two calls and kill the server when the last is answered."""
    async with way.connect() as client:
        session = session or await opened_session(client)
        assert await _recorded(client, session) == before
        with anyio.fail_after(30):
            for _ in range(2):
                assert not (await client.call_tool("inc", {"session_id": session})).is_error
        running.process.kill()
    return session, before + 2


async def _calls(way: Way, session: str) -> int:
    async with way.connect() as client:
        return await _recorded(client, session)


async def _recorded(client: Client, session: str) -> int:
    """Return how many calls are in the history, all of them with their outcome."""
    wanted: JSON = {"session_id": session, "kind": "call"}
    entries = structured(await client.call_tool("session_history", wanted))["entries"]
    assert {(entry["tool"], entry["status"]) for entry in entries} <= {("inc", "ok")}
    return len(entries)


async def _one_life(way: Way, running: Running, writer: Writer | None, after: int) -> Writer:
    if writer is None:
        async with way.connect() as client:
            writer = Writer(await opened_session(client))
    else:
        await _checked(way, writer)
    with anyio.fail_after(30):
        await writer.until_killed(way, running, after)
    return writer


async def _checked(way: Way, writer: Writer) -> None:
    async with way.connect() as client:
        result = await client.call_tool("state_get", {"session_id": writer.session})
        writer.check(structured(result))
