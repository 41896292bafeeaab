"""Several worker processes behind one port: they answer for each other, are started again, and end with their parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from support.databases import PostgreSQL
from support.gateway_process import (
    Era,
    Running,
    Way,
    count,
    opened_session,
    pid_at,
    service,
    serving,
    statehold,
    structured,
    text_of,
    toml,
)
from support.machines import cluster
from support.process_exit import until_gone
from support.round_robin import connected
from support.runs import wait_for_call

WORKERS = 2


@pytest.fixture
def config(tmp_path: Path, log: Path) -> Path:
    path = tmp_path / "statehold.toml"
    services = {"quick": service("quick", "--log", str(log), prefix="")}
    path.write_text(toml({"timeouts": {"close_grace": 5}, "services": services}))
    return path


@contextmanager
def working(config: Path, data: Path) -> Generator[Running]:
    with serving(config, data, "--workers", str(WORKERS)) as running:
        yield running


def workers_of(running: Running) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()


def port_of(running: Running) -> int:
    return int(running.url.rpartition(":")[2])


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


async def ended(running: Running) -> int:
    with anyio.fail_after(20):
        return await anyio.to_thread.run_sync(running.process.wait)


@pytest.mark.thorough
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_gets_right_answers_over_any_connection(
    config: Path, tmp_path: Path, era: Era
) -> None:
    with working(config, tmp_path / "data") as running:
        # Each request of this client goes to any worker, so its sessions are spread over them.
        async with connected([running.url], "http", era="modern") as modern:
            sessions = [await opened_session(modern) for _ in range(6)]
        async with connected([running.url], "http", era=era) as client:
            for expected in range(1, 8):
                assert [await count(client, session) for session in sessions] == [expected] * 6
            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(count, client, sessions[0])
            assert await count(client, sessions[0]) == 48


async def test_killed_workers_come_back_and_their_sessions_answer(
    config: Path, tmp_path: Path
) -> None:
    with working(config, tmp_path / "data") as running:
        async with connected([running.url], "http", era="modern") as client:
            sessions = [await opened_session(client) for _ in range(4)]
            assert [await count(client, session) for session in sessions] == [1] * 4
            killed = workers_of(running)
            for worker in killed:
                worker.kill()
            # The connections wait until there are workers again, which take up the processes of the sessions.
            with anyio.fail_after(20):
                assert [await count(client, session) for session in sessions] == [2] * 4
        await until_gone(*(worker.pid for worker in killed))
        assert {worker.pid for worker in workers_of(running)}.isdisjoint(w.pid for w in killed)
        assert running.log.count("was killed by SIGKILL") == WORKERS
        assert "Traceback" not in running.log


async def test_sigterm_ends_all_and_leaves_nothing(config: Path, tmp_path: Path) -> None:
    with working(config, tmp_path / "data") as running:
        async with connected([running.url], "http", era="modern") as client:
            await count(client, await opened_session(client))
        children = psutil.Process(running.process.pid).children(recursive=True)
        assert len(children) > WORKERS
        running.process.send_signal(signal.SIGTERM)
        assert await ended(running) == 0
        assert is_free(port_of(running))
        await until_gone(*(child.pid for child in children))
        assert "Traceback" not in running.log
        assert "WARNING" not in running.log


@pytest.mark.thorough
async def test_ctrl_c_in_a_terminal_lets_running_calls_end(
    config: Path, tmp_path: Path, log: Path
) -> None:
    with working(config, tmp_path / "data") as running:
        results: list[str] = []
        way = Way("http", "modern", config, tmp_path, url=running.url)
        async with way.connect() as client:
            session = await opened_session(client)

            async def slow() -> None:
                result = await client.call_tool("slow", {"session_id": session, "seconds": 1})
                results.append(text_of(result))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slow)
                await wait_for_call(log, "slow")
                # A terminal sends the signal to the parent and to the workers.
                for process in [*workers_of(running), psutil.Process(running.process.pid)]:
                    process.send_signal(signal.SIGINT)
            assert results == ["done"]
        assert await ended(running) == 0


@pytest.mark.thorough
async def test_workers_whose_parent_was_killed_end(config: Path, tmp_path: Path) -> None:
    with working(config, tmp_path / "data") as running:
        async with connected([running.url], "http", era="modern") as client:
            session = await opened_session(client)
            await count(client, session)
        children = psutil.Process(running.process.pid).children(recursive=True)
        running.process.send_signal(signal.SIGKILL)
        await ended(running)
        await until_gone(*(child.pid for child in children))
        assert is_free(port_of(running))
    with working(config, tmp_path / "data") as running:
        async with connected([running.url], "http", era="legacy") as client:
            listed = structured(await client.call_tool("session_list", {}))["sessions"]
            assert [(one["session_id"], one["status"]) for one in listed] == [(session, "paused")]


@pytest.mark.thorough
async def test_a_worker_that_others_declared_dead_is_replaced(
    tmp_path: Path, postgresql: PostgreSQL
) -> None:
    config, data = tmp_path / "statehold.toml", tmp_path / "data"
    settings = cluster(postgresql.fresh(), lease_seconds=2)
    config.write_text(toml({**settings, "services": {"quick": service("quick")}}))
    place = ("--config", str(config), "--data", str(data))
    with working(config, data) as running:
        listed = json.loads(run("nodes", "list", "--json", *place).stdout)["nodes"]
        assert len(listed) == WORKERS
        async with connected([running.url], "http", era="modern") as client:
            sessions = [await opened_session(client) for _ in range(4)]
            removed = run("nodes", "remove", listed[0]["node"], "--force", *place)
            assert removed.returncode == 0
            await until_gone(int(listed[0]["address"].rpartition("pid ")[2]))
            with anyio.fail_after(30):
                for session in sessions:
                    await count(client, session)
        assert running.stop() == 0
        assert "ended with 75; another one starts" in running.log


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*statehold(), *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.thorough
async def test_two_servers_do_not_share_a_port(config: Path, tmp_path: Path) -> None:
    with working(config, tmp_path / "data") as running:
        for workers in ("1", "2"):
            options = ("--port", str(port_of(running)), "--workers", workers)
            second = run("serve", "--data", str(tmp_path / "other"), *options)
            assert second.returncode == 2
            assert "another Statehold" in second.stderr
            assert second.stderr.count("\n") == 1


def test_wrong_settings_end_all_workers_with_one_line(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"), "--port", "0", "--workers", "2")
    in_memory = run("serve", *data, "--ephemeral")
    assert in_memory.returncode == 2
    assert in_memory.stderr.startswith("statehold: --workers: sessions in memory")
    store = run("serve", *data, env={"STATEHOLD_STORE__URL": "oracle://nobody@127.0.0.1/none"})
    assert store.returncode == 2
    assert store.stderr.count("store.url") == 1


@pytest.mark.thorough
def test_systemd_gets_one_notice_when_all_workers_serve(config: Path, tmp_path: Path) -> None:
    address = tmp_path / "notices"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(address))
        notices.settimeout(20)
        options = ("--workers", str(WORKERS))
        environment = {"NOTIFY_SOCKET": str(address)}
        with serving(config, tmp_path / "data", *options, env=environment) as running:
            assert notices.recv(100) == b"READY=1"
            assert {pid_at(port_of(running)) for _ in range(100)} == {
                worker.pid for worker in workers_of(running)
            }
            assert running.log.count("Statehold listens on") == 1
            assert running.stop() == 0
        assert notices.recv(100) == b"STOPPING=1"
        notices.setblocking(False)
        with pytest.raises(BlockingIOError):
            notices.recv(100)
