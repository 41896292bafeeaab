"""The benchmarks run and report their measurements. Their numbers are not checked here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fork_server import ForkServer

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.load


def measured(fork_server: ForkServer, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    file = tmp_path / "results.json"
    command = fork_server.command("-m", "benchmarks", *arguments, "--json", str(file))
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for part in set(found) - {"about", "targets"}:
        assert found[part]["title"] in done.stdout
    return found


@pytest.mark.usefixtures("postgresql")
def test_the_store_is_measured_at_1_10_and_100_writers(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    databases = ("sqlite", "postgresql")
    only = ("--databases", ",".join(databases))
    found = measured(fork_server, tmp_path, "store", "--quick", "--seconds", "0.1", *only)
    rows = found["store"]["rows"]
    assert [(row["database"], row["what"], row["writers"]) for row in rows] == [
        (database, what, writers)
        for database in databases
        for what in ("fenced write", "journal append")
        for writers in (1, 10, 100)
    ]
    assert all(row["per second"] > 0 for row in rows)
    assert [target["target"] for target in found["targets"]] == [
        f"durable writes at 100 writers ({database})" for database in databases
    ]
    assert found["about"]["packages"]["mcp"]
    assert len(found["about"]["load_before"]) == 3


def test_a_hop_is_measured_beside_the_direct_way(fork_server: ForkServer, tmp_path: Path) -> None:
    only = ("--over", "http", "--era", "modern", "--routes", "direct,statehold")
    found = measured(
        fork_server, tmp_path, "hop", "--quick", *only, "--rounds", "1", "--calls", "4"
    )
    rows = found["hop"]["rows"]
    assert {(row["route"], row["result"], row["at once"]) for row in rows} == {
        (route, size, at_once)
        for route in ("direct", "statehold")
        for size in ("small", "300 KiB")
        for at_once in (1, 8)
    }
    assert all(row["p10"] > 0 and row["CPU"] > 0 for row in rows)
    assert all(row["gateway CPU"] == 0 for row in rows if row["route"] == "direct")
    assert all(row["gateway CPU"] > 0 for row in rows if row["route"] == "statehold")


def test_a_wrong_part_is_refused(fork_server: ForkServer) -> None:
    command = fork_server.command("-m", "benchmarks", "nonsense")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_what_a_state_costs_is_measured_at_three_sizes(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    found = measured(fork_server, tmp_path, "state", "--quick", "--seconds", "0.1")
    rows = found["state"]["rows"]
    assert [row["state"] for row in rows] == ["0.9 KB", "10 KB", "50 KB"]
    assert all(row["copy us"] > 0 and row["updates"] > 0 and row["reads"] > 0 for row in rows)
    assert [target["bound"] for target in found["targets"]] == [
        "at most 5 us",
        "at most 50 us",
        "at most 250 us",
    ]


def test_the_python_client_is_measured_beside_the_sdks(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    few = ("--quick", "--over", "http", "--rounds", "1", "--calls", "4")
    found = measured(fork_server, tmp_path, "client", *few)
    assert [(row["over"], row["client"]) for row in found["client"]["rows"]] == [
        ("http", "sdk"),
        ("http", "sdk, operation id"),
        ("http", "statehold"),
        ("embedded", "sdk"),
        ("embedded", "statehold"),
    ]
    assert [target["bound"] for target in found["targets"]] == ["at most 1.05 x"] * 2 + [
        "at most 3 x"
    ] * 2


def test_the_session_layer_is_measured_around_a_tool_that_does_nothing(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    few = ("--quick", "--rounds", "1", "--calls", "4")
    found = measured(fork_server, tmp_path, "layer", *few)
    assert [(row["journal"], row["calls"]) for row in found["layer"]["rows"]] == [
        ("on", 100),
        ("off", 100),
    ]
    assert [target["bound"] for target in found["targets"]] == ["at most 0.3 ms", "at most 1 ms"]
