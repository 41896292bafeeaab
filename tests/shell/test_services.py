"""`statehold services list` and `check`."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import service, toml
from support.holding import Run, one_line

from statehold.server.exit_codes import FAILURE, OK


@pytest.fixture
def services(tmp_path: Path) -> Path:
    entries: dict[str, Any] = {
        "counter": service("quick", env={"KEY": "s3cret-v4lue"}),
        "broken": {
            "command": sys.executable,
            "args": ["-S", "-c", "raise SystemExit(3)", "--token", "s3cret-v4lue"],
        },
        "site": {"url": "https://u:s3cret-v4lue@x.example/mcp?key=s3cret-v4lue", "disabled": True},
        "shell": {
            "command": "sh",
            "args": ["postgres://u:s3cret-v4lue@db/x", "sk-s3cret0123456"],
            "disabled": True,
        },
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


def test_services_are_listed_without_their_secrets(statehold: Run, services: Path) -> None:
    for flag in ([], ["--json"]):
        output = statehold("services", "list", "--services", str(services), *flag)
        assert output.code == OK
        assert "s3cret" not in output.out
        assert "quick.py" in output.out
    listed = {s["name"]: s for s in json.loads(output.out)["services"]}
    assert listed["counter"]["transport"] == "stdio"
    assert listed["counter"]["env"] == ["KEY"]
    assert listed["site"]["transport"] == "http"
    assert listed["site"]["disabled"]


def test_services_are_checked_by_starting_them(
    statehold: Run, services: Path, process_leaks: Any
) -> None:
    output = statehold("services", "check", "--services", str(services), "--json")
    assert output.code == FAILURE
    counter, broken = output.json["services"]
    assert counter["ok"]
    assert counter["tools"] > 0
    assert not broken["ok"]
    assert "code 3" in broken["error"]
    assert "s3cret" not in output.out
    output = statehold("services", "check", "counter", "--services", str(services))
    assert output.code == OK
    assert output.out.splitlines()[1].split()[:3] == ["counter", "ok", "stdio"]
    process_leaks.check_now()


@pytest.mark.skipif(sys.platform != "linux", reason="the processes are looked at in /proc")
def test_a_check_says_what_two_sessions_share(
    statehold: Run, tmp_path: Path, process_leaks: Any
) -> None:
    holder = str(tmp_path / "holder")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    held = [str(tmp_path / "mem.db"), str(tmp_path / "uv.lock")]
    quick = service("quick")["args"][-1]
    holding = f"import runpy; held = [open(each, 'w') for each in {held}]; runpy.run_path({quick!r}, run_name='__main__')"
    entries = {
        "word": service("quick", "--log", str(tmp_path / "log")),
        "apart": service("quick", cwd="{dir}", approve=["ech*", "send"]),
        "file": {"command": sys.executable, "args": ["-S", "-c", holding]},
        "one": service("quick", scope="shared"),
        "killer": service("bad", "kills-holder", holder, cwd="{dir}"),
        "port": service("bad", "holds-port", port, cwd="{dir}"),
    }
    path = tmp_path / "statehold.toml"
    services = {name: {**entry, "prefix": f"{name}_"} for name, entry in entries.items()}
    path.write_text(toml({"services": services}))
    output = statehold("services", "check", "--config", str(path))
    assert output.code == OK, output.out
    lines = dict(line.split(": ", 1) for line in output.out.splitlines()[7:])
    assert lines.keys() == {"word", "killer", "port", "file", "apart"}
    assert lines["apart"] == "no tool is named by send in `approve`, so no person is asked"
    assert "mem.db" in lines["file"]
    assert "uv.lock" not in lines["file"]
    assert "{dir} in its path, in args or env of [services.file]" in lines["file"]
    assert lines["word"].startswith("sessions share the working folder ")
    assert 'cwd = "{dir}" in [services.word]' in lines["word"]
    assert lines["killer"].startswith("a second session ends the process of the first")
    assert "a second session cannot start beside the first" in lines["port"]
    for name in ("killer", "port"):
        assert f'scope = "shared" in [services.{name}]' in lines[name]
    process_leaks.check_now()


def test_wrong_services_and_unused_keys_are_told(statehold: Run, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entries = {
        "bad": service("quick", env={"KEY": "${GONE_FOR_THE_TEST}"}),
        "good": service("quick", cwd="{dir}", trust=True),
    }
    path.write_text(json.dumps({"mcpServers": entries}))
    output = statehold("services", "check", "--services", str(path))
    assert output.code == FAILURE
    _, bad, good, note = output.out.splitlines()
    assert bad.split()[:2] == ["bad", "fail"]
    assert "GONE_FOR_THE_TEST is not set" in bad
    assert good.split()[:2] == ["good", "ok"]
    assert note == f"{path}: these keys are not used: good: trust " + note.partition(" trust ")[2]
    listed = statehold("services", "list", "--services", str(path), "--json").json["services"]
    assert "GONE_FOR_THE_TEST" in listed[0]["problem"]
    assert listed[1]["problem"] is None
    refused = statehold("services", "list", "--services", str(path), "--strict")
    assert "GONE_FOR_THE_TEST is not set" in one_line(refused)


def test_an_empty_configuration_is_reported(statehold: Run, tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    path.write_text("[services]\n")
    output = statehold("services", "list", "--config", str(path))
    assert output.code == OK
    assert "no services are configured" in one_line(output)
    assert statehold("services", "list", "--config", str(path), "--json").json == {"services": []}
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"sessions": {"command": "statehold", "args": ["--shared"]}}}')
    note, advice = statehold("services", "list", "--services", str(path)).err.splitlines()
    assert note.endswith(": sessions")
    assert "no services are configured" in advice


def test_browser_is_listed_without_the_keys_in_its_address(statehold: Run, tmp_path: Path) -> None:
    [browser] = statehold("services", "list", "--json").json["services"]
    assert (browser["name"], browser["transport"], browser["pause"]) == (
        "browser",
        "browser",
        "snapshot",
    )
    path = tmp_path / "farm.toml"
    path.write_text(
        "[services.browser]\ncdp_endpoint = 'wss://farm.example/chromium?token=s3cret-v4lue'\n"
        "cdp_headers = { Authorization = 's3cret-v4lue' }\n"
    )
    output = statehold("services", "list", "--config", str(path), "--json")
    assert output.json["services"][0]["target"] == "wss://farm.example"
    assert output.json["services"][0]["headers"] == ["Authorization"]
    assert "s3cret" not in output.out


@pytest.mark.thorough
def test_browser_is_checked_by_starting_one(
    statehold: Run, tmp_path: Path, headless_shell: str, process_leaks: Any
) -> None:
    path = tmp_path / "browser.toml"
    path.write_text(f"[services.browser]\nexecutable = {json.dumps(headless_shell)}\n")
    output = statehold("services", "check", "--config", str(path), "--json")
    [browser] = output.json["services"]
    assert (output.code, browser["ok"], browser["error"]) == (OK, True, None)
    assert browser["server"]["name"] == "Chromium"
    assert browser["tools"] > 0
    path.write_text("[services.browser]\nexecutable = '/bin/false'\n")
    output = statehold("services", "check", "--config", str(path), "--json")
    assert output.code == FAILURE
    assert output.json["services"][0]["error"]
    process_leaks.check_now()
