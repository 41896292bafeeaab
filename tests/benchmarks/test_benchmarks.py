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


@pytest.mark.usefixtures("postgresql")
def test_a_forwarded_call_is_measured_beside_one_at_the_owner(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    few = ("--era", "modern", "--rounds", "1", "--calls", "4")
    rows = measured(fork_server, tmp_path, "forward", "--quick", *few)["forward"]["rows"]
    assert [(row["route"], row["result"]) for row in rows] == [
        (route, size)
        for routes in (("owner", "forwarded"), ("owner in a cluster", "over the peer port"))
        for size in ("small", "300 KiB")
        for route in routes
    ]
    assert all(row["p50"] > 0 for row in rows)


def test_two_workers_are_measured_beside_one(fork_server: ForkServer, tmp_path: Path) -> None:
    rows = measured(fork_server, tmp_path, "workers", "--quick")["workers"]["rows"]
    assert [row["route"] for row in rows] == [
        *("1 worker, all on one core", "1 worker", "2 workers", "2 workers, any worker"),
    ]
    assert all(row["calls"] > 0 for row in rows)
    assert all(row["failed"] == 0 for row in rows)


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
def test_delayed_effects_are_looked_for_in_the_answers_of_ours_and_the_peer(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "settle", "--quick")["settle"]
    rows = {row["route"]: row for row in figures["rows"]}
    assert rows["peer stdio"]["seen %"] == 100
    assert rows["peer stdio"]["total s"] > 1
    assert all(row["does nothing, ms"] > 0 for row in rows.values())
    assert figures["details"]["rows"][0]["page"] == "timer of 50 ms"
    assert figures["details"]["rows"][0]["peer stdio"].startswith("yes")


@needs_browsers
def test_the_size_of_answers_is_counted_with_the_files_that_they_name(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    # The pages are as large as in a whole run.
    figures = measured(fork_server, tmp_path, "tokens", "--quick")
    rows = {row["what"]: row for row in figures["tokens"]["rows"]}
    long = rows["navigate to a page of 200,000 tokens"]
    assert long["peer"] < 1000
    assert long["peer, files"] > 150_000
    assert rows["navigate to a page with 60 console errors"]["peer, files"] > 1000
    assert rows["tools/list"]["ours"] > rows["tools/list of a pinned session"]["ours"] > 1000
    assert len(figures["targets"]) == 5


@needs_browsers
def test_the_start_is_measured_until_the_tools_are_listed(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "start", "--quick")
    assert [(row["route"], row["times"]) for row in figures["start"]["rows"]] == [
        ("statehold, first start", 1),
        ("statehold", 1),
        ("statehold --session", 1),
        ("statehold --shared", 1),
        ("peer", 1),
    ]
    bounds = {target["bound"] for target in figures["targets"]}
    assert bounds == {"at most 1.8 x", "at most 100 ms"}


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
def test_many_sessions_are_called_by_clients_in_processes_of_their_own(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    # Five servers are started one after the other.
    rows = measured(fork_server, tmp_path, "crowd", "--quick")["crowd"]["rows"]
    at_once = {row["route"]: row for row in rows if row["route"].endswith("in turns")}
    ours, alone = at_once["statehold http, in turns"], at_once["playwright, in turns"]
    assert ours["navigate/s"] > 0
    assert all(row["navigate/s"] is None for row in rows if row not in at_once.values())
    assert ours["clients us"] < ours["server us"] < ours["all us"]
    assert alone["evaluate/s"] > 0
    assert alone["clients us"] is None


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


def test_tokens_and_the_audit_log_are_measured(fork_server: ForkServer, tmp_path: Path) -> None:
    figures = measured(fork_server, tmp_path, "access", "--quick")
    rows = {row["what"]: row for row in figures["access"]["rows"]}
    for kind in ("JWT", "opaque", "static"):
        assert 0 < rows[f"verifying a cached token ({kind})"]["us"] < 1000
    for log in ("audit off", "audit on", "audit required"):
        assert rows[f"a call with {log}, 8 at once"]["p10, ms"] > 0
    assert rows["audit verify of 2,000 entries"]["p10, ms"] > 0


def test_answers_about_foreign_and_unknown_sessions_are_timed(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    figures = measured(fork_server, tmp_path, "timing", "--quick")
    rows = figures["timing"]["rows"]
    assert len(rows) == len(figures["targets"]) > 55
    assert all(0 <= row["AUC"] <= 1 for row in rows)
