"""The sizes of a run: calls, rounds, sessions and seconds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COUNTER = ROOT / "tests" / "upstreams" / "counter.py"
TESTS = ROOT / "tests"
QUICK = ROOT / "tests" / "upstreams" / "quick.py"
SHELL = ROOT / "tests" / "upstreams" / "shell.py"
LIGHT = ROOT / "tests" / "upstreams" / "light.py"

North = Literal["stdio", "http"]
Era = Literal["legacy", "modern"]
MODE = {"legacy": "legacy", "modern": "2026-07-28"}
"""The SDK client's `mode` for an era."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run. `folder` is where servers keep their data and logs; it is removed afterwards."""

    folder: Path
    norths: tuple[North, ...] = ("stdio", "http")
    eras: tuple[Era, ...] = ("legacy", "modern")
    routes: tuple[str, ...] = ("direct", "statehold", "fastmcp", "mcp-proxy")
    rounds: int = 8
    calls: int = 40
    """Sequential small calls per round; large ones are a fifth of it, concurrent ones twice as many."""
    scenario_seconds: float = 6.0
    """Seconds of a scenario after which its later rounds are left out."""
    opens: int = 12
    live: int = 100
    paused: int = 10_000
    stored: tuple[int, ...] = (0, 1000, 10_000)
    starts: int = 2
    idle_seconds: float = 5.0
    browsers: tuple[int, ...] = (1, 10, 50)
    """Numbers of sessions with a browser that are open at a time."""
    browsers_at_once: int = 100
    """Number of them that call and navigate at the same time."""
    browsers_seconds: float = 3.0
    """Seconds for which their calls are counted."""
    browsers_rounds: int = 3
    """How often they are counted, in turns with those of Playwright alone."""
    browser_starts: int = 5
    browsers_idle_seconds: float = 70.0
    """Idle seconds, longer than the minute after which our pages collect their garbage."""
    settle_rounds: int = 3
    """Actions on each page of `settle`."""
    settle_pages: int = 100
    """The most pages of delayed effects."""
    documents: int = 4
    """The most pages of documentation in `tokens`."""
    large_refs: int = 6667
    """Links and buttons of the page of `large`, which has three elements for each."""
    peers: tuple[str, ...] = ()
    """Gateways of `peers`; none for all."""
    agents: tuple[str, ...] = ()
    """Routes of the scripted agent; none for all."""
    agent_rounds: int = 3
    commands: int = 100
    """Runs of each command of `call`."""
    tasks: tuple[str, ...] = ()
    """Names of the agent's tasks; none for all."""
    minutes: float = 18.0
    """Duration of the soak, of the chaos and of that of the console, in minutes."""
    seed: int = 1
    """The random seed of the soak's calls and faults."""
    workers_sessions: int = 16
    workers_rounds: int = 6
    workers_seconds: float = 1.0
    """Seconds for which the calls of one route of `workers` are counted, in each round."""
    kills: int = 300
    """Kills of the server in `keeper`."""
    without: str | None = None
    """The safeguard that the nodes of the chaos do without: guard, fence or two-clocks."""
    failover_rounds: int = 3
    """Deaths of nodes in `failover`."""
    writers: int = 1000
    """Tasks of one client that change a state at the same time."""
    store_seconds: float = 1.5
    store_rounds: int = 3
    databases: tuple[str, ...] = ("sqlite", "postgresql", "mariadb")
    many: tuple[tuple[str, int], ...] = (
        ("sqlite", 100_000),
        ("sqlite, sealed", 100_000),
        ("postgresql", 1_000_000),
    )
    """The large stores of `scale`: the database, and the number of sessions."""
    many_rounds: int = 30
    many_starts: int = 5
    nodes: int = 50
    nodes_seconds: float = 60.0
    """Seconds for which the statements of `nodes` are counted, at rest and under load each."""
    listed: int = 10_000
    """Sessions of the list in the console."""
    entries: int = 100_000
    """Entries of the timeline there."""
    page_reads: int = 40
    watch_rounds: int = 1
    watch_seconds: float = 4.0
    """Seconds for which the processor time of viewers is counted, in each round."""
    watched_calls: int = 6
    """Calls of each kind in a turn, of which half are watched."""
    timing_samples: int = 2000
    """Answers about foreign and about unknown sessions, for each request of `timing`."""
    audit_entries: int = 100_000
    hand_overs: int = 1000
    """Times that a login goes from node to node."""


def quick(folder: Path) -> Plan:
    """Return a plan that runs everything once in under a minute. Its numbers are no measurements."""
    return Plan(
        folder,
        eras=("modern",),
        rounds=2,
        calls=20,
        scenario_seconds=3.0,
        opens=3,
        live=10,
        paused=100,
        stored=(0, 1000),
        starts=1,
        idle_seconds=1.0,
        browsers=(1, 2),
        browsers_at_once=3,
        browsers_seconds=0.5,
        browsers_rounds=1,
        browser_starts=1,
        browsers_idle_seconds=0.2,
        settle_rounds=1,
        settle_pages=2,
        documents=1,
        large_refs=300,
        agent_rounds=1,
        commands=3,
        workers_sessions=4,
        kills=5,
        workers_rounds=2,
        workers_seconds=0.2,
        failover_rounds=1,
        writers=50,
        store_seconds=0.4,
        store_rounds=1,
        databases=("sqlite",),
        many=(("sqlite", 2000), ("sqlite, sealed", 2000)),
        many_rounds=2,
        many_starts=1,
        nodes=3,
        nodes_seconds=1.0,
        listed=1000,
        entries=2000,
        page_reads=3,
        watch_rounds=1,
        watch_seconds=0.5,
        watched_calls=1,
        timing_samples=10,
        audit_entries=2000,
        hand_overs=6,
    )


def python(*arguments: str | Path) -> list[str]:
    return [sys.executable, *map(str, arguments)]
