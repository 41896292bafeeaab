"""`statehold services list` and `check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.holding import Run, one_line

from statehold.server.cli.exit_codes import FAILURE, OK


@pytest.fixture
def services(tmp_path: Path, counter_command: list[str]) -> Path:
    command, *args = counter_command
    entries: dict[str, Any] = {
        "counter": {"command": command, "args": args, "env": {"KEY": "s3cret-v4lue"}},
        "broken": {
            "command": command,
            "args": ["-c", "raise SystemExit(3)", "--token", "s3cret-v4lue"],
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
        told = statehold("services", "list", "--services", str(services), *flag)
        assert told.code == OK
        assert "s3cret" not in told.out
        assert "counter.py" in told.out
    found = {s["name"]: s for s in json.loads(told.out)["services"]}
    assert found["counter"]["transport"] == "stdio"
    assert found["counter"]["env"] == ["KEY"]
    assert found["site"]["transport"] == "http"
    assert found["site"]["disabled"]


def test_services_are_checked_by_starting_them(
    statehold: Run, services: Path, process_leaks: Any
) -> None:
    told = statehold("services", "check", "--services", str(services), "--json")
    assert told.code == FAILURE
    counter, broken = told.json["services"]
    assert counter["ok"]
    assert counter["tools"] > 0
    assert not broken["ok"]
    assert "code 3" in broken["error"]
    assert "s3cret" not in told.out
    told = statehold("services", "check", "counter", "--services", str(services))
    assert told.code == OK
    assert told.out.splitlines()[1].split()[:3] == ["counter", "ok", "stdio"]
    process_leaks.check_now()


def test_no_services_is_said(statehold: Run, tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    path.write_text("[services]\n")
    told = statehold("services", "list", "--config", str(path))
    assert told.code == OK
    assert "no services are configured" in one_line(told)
    assert statehold("services", "list", "--config", str(path), "--json").json == {"services": []}


def test_browser_is_listed_without_the_keys_in_its_address(statehold: Run, tmp_path: Path) -> None:
    [found] = statehold("services", "list", "--json").json["services"]
    assert (found["name"], found["transport"], found["pause"]) == ("browser", "browser", "snapshot")
    path = tmp_path / "farm.toml"
    path.write_text(
        "[services.browser]\ncdp_endpoint = 'wss://farm.example/chromium?token=s3cret-v4lue'\n"
        "cdp_headers = { Authorization = 's3cret-v4lue' }\n"
    )
    told = statehold("services", "list", "--config", str(path), "--json")
    assert told.json["services"][0]["target"] == "wss://farm.example"
    assert told.json["services"][0]["headers"] == ["Authorization"]
    assert "s3cret" not in told.out


def test_browser_is_checked_by_starting_one(
    statehold: Run, tmp_path: Path, headless_shell: str, process_leaks: Any
) -> None:
    path = tmp_path / "browser.toml"
    path.write_text(f"[services.browser]\nexecutable = {json.dumps(headless_shell)}\n")
    told = statehold("services", "check", "--config", str(path), "--json")
    [found] = told.json["services"]
    assert (told.code, found["ok"], found["error"]) == (OK, True, None)
    assert found["server"]["name"] == "Chromium"
    assert found["tools"] > 0
    path.write_text("[services.browser]\nexecutable = '/bin/false'\n")
    told = statehold("services", "check", "--config", str(path), "--json")
    assert told.code == FAILURE
    assert told.json["services"][0]["error"]
    process_leaks.check_now()
