"""Upgrades under load on a socket that stays open: no connection is refused, and no session loses its connection."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from support.activation import activated_server
from support.counting_site import counting_site
from support.gateway_process import service, toml
from support.waiting import until

from statehold.client import Session, connect
from statehold.client.errors import OutcomeUnknown

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
    pytest.mark.fault,
    pytest.mark.thorough,
    pytest.mark.timeout(180),
]

UPGRADES = 3
CALLS_BETWEEN = 5
"""Calls of each caller between two upgrades."""
REST_SECONDS = 0.02
"""Seconds between two calls of a caller, which leave the processor to the start of the next process."""
NOTEBOOK: dict[str, Any] = {
    "command": sys.executable,
    "args": ["-m", "statehold.shell.demo.server"],
    "exclude": ["count"],
    "recipe": {
        "restores": "the notes",
        "save": [{"tool": "read_notes", "keep": {"notes": "/notes"}}],
        "restore": [{"tool": "set_notes", "arguments": {"notes": "{notes}"}}],
    },
}


def nothing(number: int) -> dict[str, str]:
    return {}


def note(number: int) -> dict[str, str]:
    return {"text": f"note {number}"}


def click(number: int) -> dict[str, str]:
    return {"function": "() => (clicks += 1)"}


@dataclass
class Caller:
    """Calls in a session of its own, until the load ends."""

    session: Session
    results: list[Any] = field(default_factory=list[Any])
    notices: list[str] = field(default_factory=list[str])
    unknown: int = 0
    """Calls whose outcome is unknown, because a kill cut them off."""

    async def run(
        self, end: anyio.Event, tool: str, arguments: Callable[[int], dict[str, str]]
    ) -> None:
        number = 0
        while not end.is_set():
            number += 1
            try:
                result = await self.session.call_tool(
                    tool, arguments(number), operation_id=f"call-{number}"
                )
            except OutcomeUnknown:
                self.unknown += 1
                continue
            self.results.append(result)
            if result.notice is not None:
                self.notices.append(result.notice)
            await anyio.sleep(REST_SECONDS)


async def connect_repeatedly(url: str, end: anyio.Event) -> None:
    """Open a connection, ask for an answer, and again. A connection that is refused raises."""
    port = urlsplit(url).port
    assert port is not None
    while not end.is_set():
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            # A process that ends may have accepted it.
            try:
                await stream.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        await anyio.sleep(REST_SECONDS)


async def wait_for_calls(callers: list[Caller]) -> None:
    """Wait until each caller has got more results."""
    goals = [(caller, len(caller.results) + CALLS_BETWEEN) for caller in callers]
    await until(lambda: all(len(caller.results) >= goal for caller, goal in goals), within=60)


@pytest.fixture
def config(tmp_path: Path, headless_shell: str) -> Path:
    browser = {"executable": headless_shell, "private": True, "snapshot": "none"}
    services = {"notebook": NOTEBOOK, "quick": service("quick"), "browser": browser}
    path = tmp_path / "statehold.toml"
    path.write_text(toml({"services": services}))
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_sessions_go_on_over_upgrades_under_load(
    config: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with counting_site() as site:
        async with (
            activated_server(config, tmp_path / "data") as server,
            connect(server.url) as client,
        ):
            end = anyio.Event()
            callers = counter, notebook, page = [Caller(await client.create()) for _ in range(3)]
            await page.session.call("browser_navigate", url=site.url)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connect_repeatedly, server.url, end)
                tasks.start_soon(counter.run, end, "inc", nothing)
                tasks.start_soon(notebook.run, end, "write_note", note)
                tasks.start_soon(page.run, end, "browser_evaluate", click)
                for _ in range(UPGRADES):
                    await wait_for_calls(callers)
                    await server.end(number)
                await wait_for_calls(callers)
                end.set()
            kept = await notebook.session.call("read_notes")
            assert kept.structured_content is not None
            notes = kept.structured_content["notes"]
            assert notes == [f"note {n + 1}" for n in range(len(notebook.results))]
            assert counter.unknown == notebook.unknown == 0
            counts = [result.structured_content["count"] for result in counter.results]
            if number is signal.SIGKILL:
                assert counts == [*range(1, len(counts) + 1)]
                assert [caller.notices for caller in callers] == [[], [], []]
                assert page.unknown <= UPGRADES
                assert {result.session.generation for result in page.results} == {1}
            else:
                # A quick server saves nothing; each note tells of one loss.
                assert counts.count(1) == UPGRADES + 1
                assert [len(caller.notices) for caller in callers] == [UPGRADES] * 3
                assert page.unknown == 0
            for caller in callers:
                await caller.session.close()
