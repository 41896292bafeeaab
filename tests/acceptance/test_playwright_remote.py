"""`@playwright/mcp` that runs by itself and is reached by its address, over SSE."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from support.agent import Agent
from support.gateway_process import Way, opened_session, serving, toml

pytestmark = [pytest.mark.peer, pytest.mark.thorough]

PASSWORD = "open sesame"


@pytest.fixture
def address(playwright_command: list[str], tmp_path: Path) -> Generator[str]:
    """Where the server listens."""
    with subprocess.Popen(
        [*playwright_command, "--port", "0"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # So that its browsers end with it.
        start_new_session=True,
    ) as process:
        try:
            assert process.stderr is not None
            lines = (re.search(r"Listening on (http://\S+)", line) for line in process.stderr)
            yield next(filter(None, lines))[1]
        finally:
            os.killpg(process.pid, signal.SIGKILL)


async def test_logins_are_kept_by_a_playwright_that_is_reached_by_its_address(
    address: str, login_site: str, tmp_path: Path
) -> None:
    """The cookie that the first client was given is sent with the calls of the next one."""
    config = tmp_path / "statehold.toml"
    config.write_text(
        toml({"services": {"playwright": {"url": f"{address}/sse", "transport": "sse"}}})
    )
    with serving(config, tmp_path / "data") as running, anyio.fail_after(60):
        way = Way("http", "modern", config, tmp_path, url=running.url)
        sessions: dict[str, str] = {}
        async with way.connect() as client:
            for name in ("ada", "bob"):
                one = Agent(client, await opened_session(client))
                sessions[name] = one.session
                await one.said("browser_navigate", url=f"{login_site}/login")
                await one.said("browser_type", target="#name", text=name)
                await one.said("browser_type", target="#password", text=PASSWORD, submit=True)
                await one.said("browser_wait_for", text=f"Logged in as {name}")
        async with way.connect() as client:
            for name, session in sessions.items():
                one = Agent(client, session)
                await one.said("browser_navigate", url=f"{login_site}/me")
                assert f"Logged in as {name}" in await one.said("browser_snapshot")
