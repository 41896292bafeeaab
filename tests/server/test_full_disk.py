"""A server whose disk is full reports it, and loses no acknowledged change."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from support.disks import full, small_disk
from support.gateway_process import (
    Running,
    Way,
    opened_session,
    service,
    serving,
    statehold,
    toml,
)
from support.waiting import until

from statehold.server.exit_codes import FAILURE


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    with small_disk(tmp_path / "disk") as path:
        yield path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "statehold.toml"
    limits = {"free_disk_bytes": 0}  # else the disk never becomes full
    path.write_text(toml({"services": {"quick": service("quick")}, "limits": limits}))
    return path


async def health(running: Running) -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=60) as client:
        return (await client.get(f"{running.url}/health")).json()


async def test_the_health_of_a_server_reports_a_full_disk(config: Path, disk: Path) -> None:
    data = disk / "data"
    with serving(config, data) as running:
        async with Way("http", "modern", config, data, url=running.url).connect() as client:
            session = await opened_session(client)
            assert (await health(running))["status"] == "ok"
            with full(disk):
                big = {"session_id": session, "values": {"text": "x" * 500_000}}
                results = [await client.call_tool("state_update", big) for _ in range(10)]
                assert any(result.is_error for result in results)
                report = await health(running)
                assert report["status"] == "failing"
                assert report["reason"].startswith(
                    "statehold.db cannot grow because the disk is full"
                )

            async def is_healthy() -> bool:
                return (await health(running))["status"] == "ok"

            await until(is_healthy)


@pytest.mark.thorough
def test_a_start_and_the_doctor_say_in_one_line_that_the_disk_is_full(
    config: Path, disk: Path
) -> None:
    options = ["--config", str(config), "--data", str(disk / "data")]
    with serving(config, disk / "data"):
        pass
    with full(disk):
        start = subprocess.run(
            [*statehold(), "serve", "--port", "0", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        doctor = subprocess.run(
            [*statehold(), "doctor", "--json", *options],
            capture_output=True,
            text=True,
            check=False,
        )
    assert start.returncode == FAILURE
    assert start.stderr.count("\n") == 1
    assert "the disk is full" in start.stderr
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.returncode == FAILURE
    assert checks["disk"]["status"] == checks["store"]["status"] == "fail"
    assert "the disk is full" in checks["store"]["detail"]


@pytest.mark.thorough
async def test_a_call_is_answered_when_its_end_is_recorded(config: Path, disk: Path) -> None:
    data, running_call = disk / "data", anyio.Event()
    meta: Any = {"statehold/operation_id": "one"}

    async def note_progress(*_: Any, **__: Any) -> None:
        running_call.set()

    with serving(config, data) as running:
        async with Way("http", "modern", config, data, url=running.url).connect() as client:
            session = await opened_session(client)
            slow = {"session_id": session, "seconds": 1}

            async def call_and_kill() -> None:
                await client.call_tool("slow", slow, meta=meta, progress_callback=note_progress)
                running.process.kill()

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call_and_kill)
                    await running_call.wait()
                    with full(disk):
                        await until(lambda: "not recorded yet" in running.log)
        running.process.wait()
    with serving(config, data) as running:
        async with Way("http", "modern", config, data, url=running.url).connect() as client:
            repeat = await client.call_tool("slow", slow, meta=meta)
    assert not repeat.is_error, repeat.content
