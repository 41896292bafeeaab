"""The Python client while its server is killed and started again: no call runs twice, and each has one outcome."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import psutil
import pytest
from support.fork_server import ForkServer
from support.gateway_process import MODULE, Running, service, serving, toml
from support.runs import runs, wait_for_call
from support.waiting import until

from statehold.client import Client, Session, connect
from statehold.client.errors import OutcomeUnknown

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("fork_server")]

AT_ONCE = 5
HANGING = "hanging"
"""The call that is surely in flight when the server is killed first; of the others it depends."""


class Counted:
    """Calls a counter that logs every run, while the server of the calls is killed."""

    def __init__(self, folder: Path, calls: int, kills: int) -> None:
        self._calls = calls
        self._chance = random.Random(20260730)
        self._kills = sorted(self._chance.sample(range(calls // 20, calls), kills))
        self.data, self.config, self._log = (
            folder / "data",
            folder / "statehold.toml",
            folder / "calls",
        )
        settings = {"services": {"quick": service("quick", "--log", str(self._log))}}
        self.config.write_text(toml(settings))
        self.outcomes: dict[str, int | None] = {}

    async def run(self, client: Client, kill: Callable[[], Awaitable[None]]) -> None:
        left = iter(range(self._calls))
        async with client.session("counting") as session, client.session("hanging") as other:

            async def call(of: Session, tool: str, mark: str) -> None:
                try:
                    result = await of.call(tool, mark=mark)
                except OutcomeUnknown:
                    self.outcomes[mark] = None
                else:
                    assert result.structured_content is not None
                    self.outcomes[mark] = result.structured_content["count"]

            async def caller() -> None:
                for number in left:
                    await call(session, "inc", str(number))

            async def killer() -> None:
                await wait_for_call(self._log, "hang")
                for at in self._kills:
                    while len(self.outcomes) < at:  # noqa: ASYNC110 the moment is to be any
                        await anyio.sleep(self._chance.random() / 200)
                    await kill()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, other, "hang", HANGING)
                tasks.start_soon(killer)
                for _ in range(AT_ONCE):
                    tasks.start_soon(caller)

    def check(self) -> None:
        counts = runs(self._log)
        assert max(counts.values()) == 1, "a call ran twice"
        answered = {mark for mark, count in self.outcomes.items() if count is not None}
        assert len(self.outcomes) == self._calls + 1
        assert answered <= set(counts)
        assert len(answered) >= self._calls - AT_ONCE * len(self._kills)
        assert self.outcomes[HANGING] is None


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("calls", "kills"),
    [
        pytest.param(150, 2, marks=pytest.mark.thorough),
        pytest.param(1000, 5, marks=pytest.mark.load),
    ],
)
async def test_a_server_that_is_killed_over_and_over_runs_no_call_twice(
    tmp_path: Path, calls: int, kills: int
) -> None:
    counted = Counted(tmp_path, calls, kills)
    with ExitStack() as stack:

        def start(port: int = 0) -> Running:
            options = ("--port", str(port)) if port else ()
            return stack.enter_context(serving(counted.config, counted.data, *options))

        running = start()
        port = urlsplit(running.url).port or 0

        async def kill() -> None:
            nonlocal running
            running.process.kill()
            await anyio.to_thread.run_sync(running.process.wait)
            running = await anyio.to_thread.run_sync(start, port)

        async with connect(running.url) as client:
            await counted.run(client, kill)
    counted.check()


@pytest.mark.thorough
@pytest.mark.timeout(240)
async def test_a_server_on_a_pipe_is_started_again(tmp_path: Path, fork_server: ForkServer) -> None:
    counted = Counted(tmp_path, 100, 2)
    options = ["--config", str(counted.config), "--data", str(counted.data)]

    def servers() -> Iterator[psutil.Process]:
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                if str(counted.data) in child.cmdline():
                    yield child

    async def kill() -> None:
        # The one before may have been killed just now: the next call starts another.
        (child,) = await until(lambda: list(servers()))
        child.kill()

    async with connect(stdio=[*fork_server.command(*MODULE), *options]) as client:
        await counted.run(client, kill)
    counted.check()
