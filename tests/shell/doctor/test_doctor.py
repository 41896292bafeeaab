"""`statehold doctor`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.gateway_process import service
from support.holding import holding
from support.token_file import write_tokens

from statehold.server.exit_codes import FAILURE, OK
from statehold.sessions.store.sql import SQLStore
from statehold.shell.main import main

Doctor = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def doctor(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Doctor:
    """Run the doctor on the test's data folder and return its exit code and its findings by name."""
    for variable in [name for name in os.environ if name.startswith("STATEHOLD_")]:
        monkeypatch.delenv(variable)

    def run(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
        capsys.readouterr()
        code = main(["doctor", "--data", str(data), "--json", *words])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert document["ok"] is (code == OK)
        for check in document["checks"]:
            assert check["status"] == "ok" or check["remedy"], check
        return code, {check["name"]: check for check in document["checks"]}

    return run


def services(folder: Path, **entries: dict[str, Any]) -> list[str]:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return ["--services", str(path)]


def make_store(data: Path) -> None:
    async def make() -> None:
        async with SQLStore.sqlite(data):
            pass

    anyio.run(make)


def test_every_check_of_a_healthy_machine_is_ok(doctor: Doctor, data: Path, tmp_path: Path) -> None:
    make_store(data)
    code, checks = doctor(*services(tmp_path, py=service("quick")))
    assert code == OK
    assert checks["service py"]["detail"].endswith(" started, 9 tools")
    for name in ("configuration", "python", "mcp", "service py", "data folder", "store"):
        assert checks[name]["status"] == "ok", checks[name]
    assert checks["leftover children"]["detail"] == "none"
    assert checks["store"]["detail"] == "0 open sessions, 0 closed"


@pytest.mark.thorough
def test_the_name_of_a_service_adds_no_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = services(tmp_path, **{"a\nnothing is wrong\u2028b": {"command": "/no/such"}})
    assert main(["doctor", "--data", str(data), *words]) == FAILURE
    lines = capsys.readouterr().out.splitlines()
    assert "what to do:" in lines
    assert [line for line in lines if line.startswith(("nothing is wrong", "b"))] == []


def test_the_doctor_creates_no_data_folder(doctor: Doctor, data: Path) -> None:
    code, checks = doctor()
    assert code == OK
    assert "will be made" in checks["data folder"]["detail"]
    assert checks["configuration"]["detail"] == "1 service"
    assert not data.exists()


def test_report_for_people_ends_with_what_to_do(
    doctor: Doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", *services(tmp_path, x={"command": "no-such-program"}), "--ephemeral"])
    report = capsys.readouterr().out
    assert code == FAILURE
    assert "fail  service x" in report
    assert "service x: install no-such-program, or give its full path as command" in report
    assert report.endswith("\n1 wrong\n")


def test_missing_program_of_a_service_is_a_failure(doctor: Doctor, tmp_path: Path) -> None:
    entry = {"command": "python-of-elsewhere", "env": {"PATH": str(tmp_path)}}
    code, checks = doctor(*services(tmp_path, there=entry))
    assert (code, checks["service there"]["status"]) == (FAILURE, "fail")
    quick = service("quick")
    program = tmp_path / "python-of-elsewhere"
    program.write_text(f"#!/bin/sh\nexec {quick['command']} {' '.join(quick['args'])}\n")
    program.chmod(0o755)
    code, checks = doctor(*services(tmp_path, there=entry))
    assert (code, checks["service there"]["status"]) == (OK, "ok")


def test_a_service_that_cannot_start_is_not_ok(doctor: Doctor, tmp_path: Path) -> None:
    entries: dict[str, dict[str, Any]] = {
        "script": {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit(3)"]},
        "address": {"url": "http://127.0.0.1:9/mcp"},
        "unset": service("quick", env={"KEY": "${GONE_FOR_THE_TEST}"}),
        "place": service("quick", cwd="none"),
        "good": service("quick"),
    }
    code, checks = doctor(*services(tmp_path, **entries))
    statuses = {name: checks[f"service {name}"]["status"] for name in entries}
    assert code == FAILURE
    assert statuses == {**dict.fromkeys(entries, "fail"), "good": "ok"}
    assert "code 3" in checks["service script"]["detail"]
    assert "GONE_FOR_THE_TEST is not set" in checks["service unset"]["detail"]
    assert checks["service place"]["remedy"] == "make it, or correct the path"


def test_report_with_advice_does_not_say_that_nothing_is_wrong(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.toml").write_text("[services]\n")
    code = main(["doctor", "--config", str(tmp_path / "none.toml"), "--data", str(data)])
    report = capsys.readouterr().out
    assert code == OK
    assert "configuration: add [services.NAME]" in report
    assert "nothing is wrong" not in report


def test_our_own_interpreter_is_a_program(doctor: Doctor, tmp_path: Path) -> None:
    entry = {**service("quick"), "command": "{python}", "env": {"PATH": str(tmp_path)}}
    code, checks = doctor(*services(tmp_path, own=entry))
    assert (code, checks["service own"]["status"]) == (OK, "ok")


def test_a_missing_node_is_reported_only_to_services_that_use_it(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, checks = doctor(*services(tmp_path, py=service("quick")))
    assert (code, checks["npx"]["status"]) == (OK, "ok")
    # The row of the built-in browser covers Chromium.
    assert "chromium" not in checks
    entry = {"command": "npx", "args": ["-y", "@playwright/mcp"]}
    code, checks = doctor(*services(tmp_path, browser=entry))
    assert code == FAILURE
    assert checks["npx"]["status"] == "fail"
    assert "nodejs.org" in checks["npx"]["remedy"]
    assert checks["chromium"]["status"] == "warn"


def test_program_that_does_not_start_is_found(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    code, checks = doctor(*services(tmp_path, n={"command": "node"}))
    assert code == FAILURE
    assert "does not start" in checks["node"]["detail"]


def test_other_checks_run_with_a_wrong_configuration(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[timeouts]\nidel = 1\n")
    code, checks = doctor("--config", str(path))
    assert code == FAILURE
    assert checks["configuration"]["detail"] == f"{path}: timeouts.idel: is not a setting"
    assert checks["configuration"]["remedy"] == "did you mean timeouts.idle?"
    assert checks["data folder"]["status"] == "ok"


def test_tokens_that_others_can_read_are_found(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    write_tokens(path, "0123456789abcdef0123 alice\n")
    path.chmod(0o644)
    code, checks = doctor("--token-file", str(path))
    assert code == FAILURE
    assert checks["tokens"]["remedy"] == f"run: chmod 600 {path}"
    path.chmod(0o600)
    code, checks = doctor("--token-file", str(path))
    assert (code, checks["tokens"]["detail"]) == (OK, f"1 in {path}")


def test_folder_and_files_that_others_can_read_are_found(doctor: Doctor, data: Path) -> None:
    make_store(data)
    data.chmod(0o755)
    code, checks = doctor()
    assert code == FAILURE
    assert "(0755)" in checks["data folder"]["detail"]
    assert checks["data folder"]["remedy"] == f"chmod 700 {data}"

    data.chmod(0o700)
    file = data / "statehold.db"
    file.chmod(0o640)
    code, checks = doctor()
    assert code == FAILURE
    assert checks["data files"]["remedy"] == f"chmod 600 {file}"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_folder_that_cannot_be_made_is_found(doctor: Doctor, data: Path) -> None:
    data.parent.chmod(0o500)
    try:
        code, checks = doctor()
    finally:
        data.parent.chmod(0o700)
    assert code == FAILURE
    assert "cannot be made" in checks["data folder"]["detail"]


def test_damaged_database_is_found(doctor: Doctor, data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "statehold.db").write_bytes(b"no database at all" * 500)
    (data / "statehold.db").chmod(0o600)
    code, checks = doctor()
    assert code == FAILURE
    assert checks["store"]["status"] == "fail"
    assert checks["leftover children"]["status"] == "ok"


def test_running_processes_are_named_and_silent_ones_are_suspected(
    doctor: Doctor, data: Path
) -> None:
    for words, status in (([], "ok"), (["--silent"], "warn")):
        with holding(data, *words) as held:
            code, checks = doctor()
            assert code == OK
            assert checks["processes"]["status"] == status
            assert f"pid {held.process.pid}" in checks["processes"]["detail"]


STARTER = """
import subprocess, sys
from pathlib import Path
from statehold.tools.processes.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), node="n_gone", watchdog=False)
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
ledger.add(child.pid, ledger.mark(), "memory")
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
@pytest.mark.fault
def test_children_that_outlived_their_process_are_found(doctor: Doctor, data: Path) -> None:
    data.mkdir(mode=0o700)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert doctor()[1]["leftover children"]["detail"] == "none"
            process.kill()
            process.wait(10)
            code, checks = doctor()
            assert code == FAILURE
            assert checks["leftover children"]["detail"] == f"pid {child} of memory"
            assert "start Statehold once" in checks["leftover children"]["remedy"]
        finally:
            os.kill(child, signal.SIGKILL)


def test_check_that_breaks_is_a_finding(
    doctor: Doctor, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.mkdir(mode=0o700)

    def broken(path: object) -> object:
        raise OSError("no such device")

    monkeypatch.setattr("shutil.disk_usage", broken)
    code, checks = doctor()
    assert code == FAILURE
    assert "no such device" in checks["folder"]["detail"]
    assert checks["data folder"]["status"] == "ok"
