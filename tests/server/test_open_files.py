"""A server without a free file descriptor: acknowledged calls stay in the journal, new sessions are refused cleanly."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from support.gateway_process import (
    Way,
    code_of,
    count,
    opened_session,
    service,
    serving,
    structured,
    toml,
)
from support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="changes the limits of a process")


@contextmanager
def no_descriptor_left(pid: int) -> Generator[None]:
    """Keep a process from opening more files; its open ones stay open."""
    process = psutil.Process(pid)
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    # A new descriptor gets the lowest free number, so that the gaps below the limit have to be few.
    used = sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    free = next(number for number in range(len(used) + 1) if number not in used)
    process.rlimit(psutil.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, before)


async def committed(data: Path, calls: int) -> None:
    """Wait until so many calls are in the database."""
    with closing(sqlite3.connect(data / "statehold.db")) as database:
        query = "SELECT count(*) FROM journal WHERE tool = 'inc'"
        await until(lambda: database.execute(query).fetchone()[0] >= calls)


@pytest.mark.thorough
async def test_calls_acknowledged_without_a_descriptor_are_in_the_journal(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("quick")}}))
    data = tmp_path / "data"
    with serving(config, data, as_installed=True) as running:
        async with Way("http", "modern", config, data, url=running.url).connect() as client:
            session = await opened_session(client)
            await count(client, session)
            with no_descriptor_left(running.process.pid):
                for calls in range(2, 5):
                    assert await count(client, session) == calls
                    # Committed, and not flushed to the disk yet: the next durable write has to do both.
                    await committed(data, calls)
                    result = await client.call_tool(
                        "session_note", {"session_id": session, "role": "user", "content": "x"}
                    )
                    assert not result.is_error
                created = await client.call_tool("session_create", {})
                assert not created.is_error or code_of(created) == "service_unavailable"
            await opened_session(client)
            history = structured(
                await client.call_tool("session_history", {"session_id": session, "last": 100})
            )
    entries = history["entries"]
    assert [e["seq"] for e in entries] == list(range(1, len(entries) + 1))
    assert len([e for e in entries if e.get("tool") == "inc"]) == 4
    assert "Traceback" not in running.log


def limits_after(*command: str) -> tuple[int, int]:
    """Start a program with a limit of 512 open files, and return the limits that it prints."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    first, second = map(int, ran.stdout.split())
    return first, second


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    program = (
        "import resource; from statehold.server.process.open_files import raise_limit; raise_limit(); "
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limits_after(sys.executable, "-c", program) == (min(hard, 65_536), hard)


@pytest.mark.thorough
def test_a_server_asks_for_as_many_open_files_as_it_may_have(tmp_path: Path) -> None:
    import resource

    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"quick": service("quick")}}))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with serving(config, tmp_path / "data", as_installed=True) as running:
            limits: tuple[int, int] = psutil.Process(running.process.pid).rlimit(
                psutil.RLIMIT_NOFILE
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits == (min(hard, 65_536), hard)
