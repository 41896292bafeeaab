"""`statehold status`, `stop --all` and `doctor` on a data folder with a keeper."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import psutil
import pytest
from support.gateway_process import JSON, Way, opened_session, service, serving, structured, toml
from support.holding import Output, Run, one_line
from support.process_exit import alive, until_gone
from support.shared_clients import SharedClients

from statehold.server.exit_codes import FAILURE, OK
from statehold.tools.processes.keeper_command import KeeperCommand

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
    pytest.mark.fault,
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "statehold.toml"
    path.write_text(toml({"services": {"quick": service("quick")}}))
    return path


@pytest.fixture(autouse=True)
def no_keeper_is_left(data: Path) -> Generator[None]:
    yield
    for process in psutil.process_iter(["cmdline"]):
        if str(data) in (process.info["cmdline"] or ()) and "-S" in process.info["cmdline"]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


@dataclass
class Counted:
    """A session in which one call was made, and the process that answered it."""

    session: str
    pid: int


def count(config: Path, data: Path, url: str) -> Counted:
    async def run() -> Counted:
        async with Way("http", "modern", config, data, url=url).connect() as client:
            session = await opened_session(client)
            answer = structured(await client.call_tool("inc", {"session_id": session}))
            return Counted(session, answer["pid"])

    return anyio.run(run)


def killed(config: Path, data: Path) -> Counted:
    """Count in a session of a server, and kill the server with -9."""
    with serving(config, data) as server:
        counted = count(config, data, server.url)
        server.process.kill()
        server.process.wait(10)
    return counted


def wait_gone(*pids: int) -> None:
    anyio.run(until_gone, *pids)


def keeper_of(output: Output) -> JSON:
    keeper: JSON = output.json["keeper"]
    return keeper


def findings(output: Output) -> dict[str, JSON]:
    checks: list[JSON] = output.json["checks"]
    return {check["name"]: check for check in checks}


def test_status_shows_the_processes_of_a_server_that_runs_and_of_one_that_was_killed(
    statehold: Run, config: Path, data: Path
) -> None:
    first = killed(config, data)
    keeper = keeper_of(statehold("status", "--json"))
    [child] = keeper["children"]
    assert child.pop("alone_seconds") >= 0
    assert child == {
        "session": first.session,
        "service": "quick",
        "pid": first.pid,
        "has_node": False,
        "code": None,
    }
    assert keeper["nodes"] == 0
    assert keeper["linger_seconds"] == 60
    shown = statehold("status").out
    assert shown.startswith(
        f"no server runs for {data}\n\nkeeper: pid {keeper['pid']}, 1 process\n"
    )
    assert f"{first.session}  quick    {first.pid}" in shown
    assert "no node for " in shown
    with serving(config, data) as server:
        second = count(config, data, server.url)
        children = keeper_of(statehold("status", "--json"))["children"]
        assert {c["pid"]: c["has_node"] for c in children} == {first.pid: True, second.pid: True}
        shown = statehold("status").out
        assert f"address        {server.url}" in shown
        assert shown.count("a node has it\n") == 2
        status = statehold("status", "--json").json
        assert (status["pid"], status["processes"]) == (server.process.pid, [])
    wait_gone(keeper["pid"])
    assert statehold("status", "--json").json["keeper"] is None


@pytest.mark.thorough
def test_the_processes_of_a_killed_shared_server_are_shown_and_ended(
    statehold: Run, config: Path, data: Path
) -> None:
    shared = SharedClients(config, data)

    async def use(name: str) -> int:
        async with shared.connect("--session", name) as client:
            return structured(await client.call_tool("inc", {}))["pid"]

    first = anyio.run(use, "first")
    # After its client has left, which would start another one.
    served = shared.status()
    assert served is not None
    os.kill(served["pid"], signal.SIGKILL)
    assert not statehold("status", "--json").json["running"]
    anyio.run(use, "second")
    status = statehold("status", "--json")
    assert status.json["running"]
    keeper = keeper_of(status)
    assert first in [child["pid"] for child in keeper["children"]]
    ended = statehold("stop", "--all")
    assert ended.code == OK
    assert f"stopped the server of {data}" in ended.out
    wait_gone(first, keeper["pid"])
    assert statehold("status", "--json").json == {
        "running": False,
        "data": str(data),
        "processes": [],
        "keeper": None,
    }


def test_stop_all_ends_the_processes_that_no_node_holds_and_the_keeper(
    statehold: Run, config: Path, data: Path
) -> None:
    assert statehold("stop", "--all").out.endswith(f"no keeper runs for {data}\n")
    left = killed(config, data)
    keeper = keeper_of(statehold("status", "--json"))
    assert statehold("stop").code == OK
    assert alive(left.pid)
    ended = statehold("stop", "--all")
    assert (ended.code, ended.err) == (OK, "")
    assert "ended 1 process that no node had" in ended.out
    assert f"the keeper (pid {keeper['pid']}) has ended" in ended.out
    assert not alive(keeper["pid"])
    wait_gone(left.pid)


@pytest.mark.thorough
def test_stop_ends_serve_as_a_signal_does(statehold: Run, config: Path, data: Path) -> None:
    with serving(config, data) as server:
        counted = count(config, data, server.url)
        assert f"stopped the server of {data} ({server.url}" in statehold("stop").out
        assert server.process.wait(20) == OK
        wait_gone(counted.pid)
        code, checks = (output := statehold("doctor", "--json")).code, findings(output)
        assert (code, checks["leftover children"]["detail"]) == (OK, "none")


@pytest.mark.thorough
def test_doctor_reports_the_processes_that_no_node_has(
    statehold: Run, config: Path, data: Path
) -> None:
    left = killed(config, data)
    output = statehold("doctor", "--json")
    checks = findings(output)
    assert (output.code, checks["keeper"]["status"]) == (OK, "warn")
    assert checks["keeper"]["detail"] == f"no node has pid {left.pid} of quick"
    assert "statehold stop --all" in checks["keeper"]["remedy"]
    # The next server resumes it; it does not end it.
    assert checks["leftover children"]["detail"] == "none"


@pytest.mark.thorough
def test_a_keeper_that_does_not_answer_is_reported(
    statehold: Run, config: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(config, data)
    keeper = keeper_of(statehold("status", "--json"))["pid"]
    os.kill(keeper, signal.SIGSTOP)
    command = partial(KeeperCommand, answer_seconds=0.2)
    monkeypatch.setattr("statehold.shell.status.KeeperCommand", command)
    doctor = statehold("doctor", "--json")
    assert doctor.code == FAILURE
    assert findings(doctor)["keeper"]["detail"] == f"it does not answer (pid {keeper})"
    for words in (["status"], ["stop", "--all"]):
        refused = statehold(*words)
        assert refused.code == FAILURE
        assert f"it does not answer (pid {keeper})" in one_line(refused)


@pytest.mark.parametrize(("linger", "is_reported"), [(None, True), (0, False)])
def test_doctor_reports_that_no_keeper_can_run(
    statehold: Run,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    linger: int | None,
    is_reported: bool,
) -> None:
    monkeypatch.setattr("statehold.shell.doctor.data.find_setpriv", lambda: None)
    if linger is not None:
        config.write_text(config.read_text() + toml({"keeper": {"linger_seconds": linger}}))
    checks = findings(statehold("doctor", "--json", "--config", str(config)))
    assert ("keeper" in checks) is is_reported
    if is_reported:
        assert (checks["keeper"]["status"], checks["keeper"]["remedy"]) == (
            "warn",
            "install util-linux",
        )
