"""`python -m benchmarks [part ...] [--quick] [--json FILE]`: measure, print tables, write JSON."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio

from . import machine
from .gateways import install_mcp_proxy
from .plan import Plan, quick
from .report import Table, against_targets

PARTS = {
    "hop": "benchmarks.hop",
    "open": "benchmarks.opening",
    "density": "benchmarks.density",
    "restart": "benchmarks.restart",
    "store": "benchmarks.store",
    "journal": "benchmarks.journal",
    "state": "benchmarks.carrying",
    "browser": "benchmarks.browser.latency",
    "crowd": "benchmarks.browser.crowd",
    "keep": "benchmarks.browser.keep",
    "storage": "benchmarks.browser.storage",
    "settle": "benchmarks.browser.settle",
    "tokens": "benchmarks.browser.tokens",
    "start": "benchmarks.browser.start",
    "large": "benchmarks.browser.large",
    "agent": "benchmarks.agent",
    "client": "benchmarks.clients",
    "layer": "benchmarks.layer",
    "soak": "benchmarks.soak",
}
ONLY_BY_NAME = {"soak"}
"""Parts that are tests instead of measurements: the command fails when they do."""
ON_UVLOOP = {"store", "state", "layer"}
"""Parts that run Statehold's own code in this process, on the loop that Statehold uses."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    found.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], metavar="part", help=", ".join(PARTS)
    )
    found.add_argument("--quick", action="store_true", help="everything once, in under a minute")
    found.add_argument("--json", type=Path, metavar="FILE", help="write the results there as JSON")
    found.add_argument("--over", choices=["stdio", "http"], help="hop: only this transport")
    found.add_argument("--era", choices=["legacy", "modern"], help="hop: only this protocol era")
    found.add_argument(
        "--routes",
        help="hop: only these, of direct,statehold,fastmcp,mcp-proxy; agent: only these, by their names in the table",
    )
    found.add_argument("--rounds", type=int, help="hop: rounds of each scenario")
    found.add_argument("--calls", type=int, help="hop: calls per round")
    found.add_argument("--databases", help="store: only these, of sqlite,postgresql,mariadb")
    found.add_argument("--tasks", help="agent: only these, by their names in the table")
    found.add_argument("--minutes", type=float, help="soak: how long it takes")
    found.add_argument("--seed", type=int, help="soak: draws other calls and faults")
    found.add_argument("--seconds", type=float, help="store: how long one round takes")
    return found


def planned(given: argparse.Namespace, folder: Path) -> Plan:
    plan = quick(folder) if given.quick else Plan(folder)
    changed: dict[str, Any] = {
        "norths": (given.over,) if given.over else None,
        "eras": (given.era,) if given.era else None,
        "routes": tuple(given.routes.split(",")) if given.routes else None,
        "agents": tuple(given.routes.split(",")) if given.routes else None,
        "rounds": given.rounds,
        "calls": given.calls,
        "store_seconds": given.seconds,
        "minutes": given.minutes,
        "seed": given.seed,
        "tasks": tuple(given.tasks.split(",")) if given.tasks else None,
        "databases": tuple(given.databases.split(",")) if given.databases else None,
    }
    return replace(plan, **{name: value for name, value in changed.items() if value is not None})


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    # A run that is stopped then stops the processes that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parts: list[str] = given.parts or [part for part in PARTS if part not in ONLY_BY_NAME]
    began, load = time.monotonic(), machine.load()
    with tempfile.TemporaryDirectory(prefix="statehold-bench-") as folder:
        plan = planned(given, Path(folder))
        if "hop" in parts and "mcp-proxy" in plan.routes and (problem := install_mcp_proxy()):
            print(f"mcp-proxy cannot be installed: {problem}", file=sys.stderr)
        tables = {part: _run(part, plan) for part in parts}
    about = {
        **machine.described(),
        "command": " ".join(["python -m benchmarks", *(arguments or sys.argv[1:])]),
        "load_before": load,
        "load_after": machine.load(),
        "seconds": round(time.monotonic() - began, 1),
    }
    targets = against_targets([*tables.values()])
    if targets.rows:
        print(targets.text())
    print("\n" + "\n".join(f"{name}: {value}" for name, value in about.items()))
    if given.json is not None:
        found = {"about": about, "targets": targets.rows}
        found |= {part: table.json() for part, table in tables.items()}
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    failed = [tables[part] for part in parts if part in ONLY_BY_NAME]
    return 0 if all(target.met for table in failed for target in table.targets) else 1


def _run(part: str, plan: Plan) -> Table:
    measure = cast(
        "Callable[[Plan], Awaitable[Table]]", importlib.import_module(PARTS[part]).measure
    )
    options = {"use_uvloop": True} if part in ON_UVLOOP and _has_uvloop() else {}
    table = anyio.run(measure, plan, backend_options=options)
    print(table.text(), flush=True)
    return table


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


if __name__ == "__main__":
    sys.exit(main())
