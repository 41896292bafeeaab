"""The benchmarks run and report their measurements. Their numbers are not checked here."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "tests" / "peers" / "node_modules" / "@playwright" / "mcp"

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(240)]
needs_browsers = pytest.mark.skipif(
    shutil.which("chromium-headless-shell") is None or not PEER.exists(),
    reason="chromium-headless-shell or @playwright/mcp is not installed",
)


def measured(
    fork_server: ForkServer, tmp_path: Path, *arguments: str, seconds: float = 220
) -> dict[str, Any]:
    file = tmp_path / "results.json"
    command = fork_server.command("-m", "benchmarks", *arguments, "--json", str(file))
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    # Published runs name no path of a machine.
    assert figures["about"]["command"] == " ".join(["python -m benchmarks", *arguments])
    for part in set(figures) - {"about", "targets"}:
        assert figures[part]["title"] in done.stdout
    return figures


@pytest.mark.usefixtures("postgresql")
def test_the_store_is_measured_at_1_10_and_100_writers(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    databases = ("sqlite", "postgresql")
    only = ("--databases", ",".join(databases))
    figures = measured(fork_server, tmp_path, "store", "--quick", "--seconds", "0.1", *only)
    rows = figures["store"]["rows"]
    assert [(row["database"], row["what"], row["writers"]) for row in rows] == [
        (database, what, writers)
        for database in databases
        for what in ("fenced write", "journal append")
        for writers in (1, 10, 100)
    ]
    assert all(row["per second"] > 0 for row in rows)
    assert [target["target"] for target in figures["targets"]] == [
        f"durable writes at 100 writers ({database})" for database in databases
    ]
    assert figures["about"]["packages"]["mcp"]
    assert len(figures["about"]["load_before"]) == 3


def test_requests_are_measured_on_a_small_and_on_a_large_store(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "scale", "--quick")
    by_database: dict[str, list[str]] = {}
    for row in figures["scale"]["rows"]:
        assert min(row["1,000"], row["many"]) > 0
        by_database.setdefault(row["database"], []).append(row["what"])
    assert {*by_database} == {"sqlite", "sqlite, sealed"}
    clear, sealed = by_database["sqlite"], by_database["sqlite, sealed"]
    # A sealed store does not sort by names, and no server starts on it.
    assert {*clear} - {*sealed} == {
        "list, by name",
        "start",
        "call",
        "call of a paused session, by its name",
    }
    assert len(figures["targets"]) == len(clear) + len(sealed) - 4 - 3


@pytest.mark.usefixtures("postgresql")
def test_simulated_nodes_send_the_statements_of_a_server(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "nodes", "--quick")
    rows = figures["nodes"]["rows"]
    assert [row["nodes"] for row in rows] == [1, 1, 1, 1, 3, 3]
    server, simulated = rows[1], rows[3]
    assert 0.5 < simulated["statements/s"] / server["statements/s"] < 2
    assert rows[5]["statements/s"] > 2 * simulated["statements/s"]


def test_a_hop_is_measured_beside_the_direct_way(fork_server: ForkServer, tmp_path: Path) -> None:
    only = ("--over", "http", "--era", "modern", "--routes", "direct,statehold")
    figures = measured(
        fork_server, tmp_path, "hop", "--quick", *only, "--rounds", "1", "--calls", "4"
    )
    rows = figures["hop"]["rows"]
    assert {(row["route"], row["result"], row["at once"]) for row in rows} == {
        (route, size, at_once)
        for route in ("direct", "statehold")
        for size in ("small", "300 KiB")
        for at_once in (1, 8)
    }
    assert all(row["p10"] > 0 and row["counter CPU"] > 0 for row in rows)
    assert all(row["gateway CPU"] == 0 for row in rows if row["route"] == "direct")
    assert all(row["gateway CPU"] > 0 for row in rows if row["route"] == "statehold")


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_gateways_are_measured_with_what_they_keep(
    fork_server: ForkServer, tmp_path: Path, over: str
) -> None:
    few = ("--quick", "--over", over, "--rounds", "2", "--calls", "4")
    only = ("--era", "legacy", "--routes", "direct,statehold,toolhive")
    figures = measured(fork_server, tmp_path, "peers", *few, *only)
    direct, ours = figures["peers"]["rows"]
    kept = ("reconnect", "restart", "kill -9", "shared")
    # Over stdio the connection is the gateway; a clean stop restores what a recipe saved, here nothing.
    after_stop, after_kill = (None, "no") if over == "stdio" else ("no", "yes")
    assert [direct[column] for column in kept] == ["no", after_stop, "no", "no"]
    assert [ours[column] for column in kept] == [after_kill, after_stop, after_kill, "no"]
    assert all(row["p10"] > 0 and row["start"] > 0 and row["version"] for row in (direct, ours))
    assert (direct["MiB"], ours["MiB"] > 0) == (0, True)
    assert "left out: toolhive" in figures["peers"]["notes"][0]


def test_writers_are_measured_with_and_without_a_bound(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    few = ("--writers", "70", "--rounds", "1")
    rows = measured(fork_server, tmp_path, "writers", "--quick", *few)["writers"]["rows"]
    assert [row["client"] for row in rows] == ["64 connections", "no bound"]
    assert all(row["writes/s"] > 0 for row in rows)


def test_a_wrong_part_is_refused(fork_server: ForkServer) -> None:
    command = fork_server.command("-m", "benchmarks", "nonsense")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=220)
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_the_cost_of_a_state_is_measured_at_three_sizes(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "state", "--quick", "--seconds", "0.1")
    rows = figures["state"]["rows"]
    assert [row["state"] for row in rows] == ["0.9 KB", "10 KB", "50 KB"]
    assert all(row["copy us"] > 0 and row["updates"] > 0 and row["reads"] > 0 for row in rows)
    assert [target["bound"] for target in figures["targets"]] == [
        "at most 5 us",
        "at most 50 us",
        "at most 250 us",
    ]


def test_the_python_client_is_measured_beside_the_sdks(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    few = ("--quick", "--over", "http", "--rounds", "1", "--calls", "4")
    figures = measured(fork_server, tmp_path, "client", *few)
    assert [(row["over"], row["client"]) for row in figures["client"]["rows"]] == [
        ("http", "sdk"),
        ("http", "sdk, operation id"),
        ("http", "statehold"),
        ("embedded", "sdk"),
        ("embedded", "statehold"),
    ]
    assert [target["bound"] for target in figures["targets"]] == ["at most 1.05 x"] * 2 + [
        "at most 3 x"
    ] * 2


def test_the_session_layer_is_measured_around_a_tool_that_does_nothing(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    few = ("--quick", "--rounds", "1", "--calls", "4")
    figures = measured(fork_server, tmp_path, "layer", *few)
    assert [(row["journal"], row["calls"]) for row in figures["layer"]["rows"]] == [
        ("on", 100),
        ("off", 100),
    ]
    assert [target["bound"] for target in figures["targets"]] == ["at most 0.3 ms", "at most 1 ms"]


@needs_browsers
def test_actions_on_a_large_page_are_measured_beside_the_peer(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "large", "--quick")
    rows = figures["large"]["rows"]
    assert {row["what"] for row in rows} == {"navigate", "click", "snapshot"}
    assert {row["route"] for row in rows} >= {"statehold stdio", "peer stdio"}
    assert [target["bound"] for target in figures["targets"]] == [
        "at most 1 x",
        "at most 0.3 x",
        "at most 1 x",
    ]


@needs_browsers
@pytest.mark.usefixtures("postgresql")
def test_hand_overs_of_a_login_are_measured_and_calls_with_it_beside_others(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "logins", "--quick")
    rows = figures["logins"]["rows"]
    assert [row["session"] for row in rows] == [
        "of two nodes",
        *("with a login", "without") * 2,
    ]
    assert (rows[0]["times"], rows[0]["401"]) == (6, 0)
    assert [target["bound"] for target in figures["targets"]] == [
        "at most 150 ms",
        "at most 0 answers",
        "at most 1 x",
        "at most 10 ms more",
    ]


def test_the_agent_does_its_tasks_through_statehold(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    only = ("--routes", "statehold", "--tasks", "shop with type-ahead,payment in a frame")
    figures = measured(fork_server, tmp_path, "agent", "--quick", *only)
    assert [(row["task"], row["done"]) for row in figures["agent"]["rows"]] == [
        ("shop with type-ahead", "1 of 1"),
        ("payment in a frame", "1 of 1"),
        ("all", "2 of 2"),
    ]
    assert all(row["tokens"] > 0 and row["seconds"] > 0 for row in figures["agent"]["rows"])
