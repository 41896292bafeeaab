"""`python -m benchmarks [part ...] [--quick] [--json FILE]`: measure, print tables, write JSON.

`python -m benchmarks all`: record every part in benchmarks/runs, one after the other, each when the machine is quiet.

`python -m benchmarks plot`: draw the charts of docs/reference/benchmarks.md, and write the figures of that page, of
README.md and of docs/compare.md, from benchmarks/runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
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
from .parts import ON_UVLOOP, ONLY_BY_NAME, PARTS, module_of
from .plan import Plan, quick
from .record import record_all
from .report import Table, against_targets

PLOT = "plot"
"""The word that draws instead of measuring."""
ALL = "all"
QUIET_SECONDS = 180.0
"""The longest wait for a quiet machine before a run."""
END_SECONDS = 15.0
"""The longest wait afterwards: programs of the run may still end."""


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    arguments.add_argument(
        "parts",
        nargs="*",
        choices=[*PARTS, ALL, PLOT, []],
        metavar="part",
        help=", ".join([*PARTS, ALL, PLOT]),
    )
    arguments.add_argument(
        "--quick", action="store_true", help="everything once, in under a minute"
    )
    arguments.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results there as JSON"
    )
    arguments.add_argument(
        "--when-quiet",
        action="store_true",
        help="wait up to 3 minutes until other programs are idle; the results say whether they were",
    )
    arguments.add_argument("--over", choices=["stdio", "http"], help="hop: only this transport")
    arguments.add_argument(
        "--era", choices=["legacy", "modern"], help="hop: only this protocol era"
    )
    arguments.add_argument(
        "--routes",
        help="hop, peers, agent: only these, by their names in the table",
    )
    arguments.add_argument("--rounds", type=int, help="hop: rounds of each scenario")
    arguments.add_argument("--calls", type=int, help="hop: calls per round")
    arguments.add_argument("--databases", help="store: only these, of sqlite,postgresql,mariadb")
    arguments.add_argument("--tasks", help="agent: only these, by their names in the table")
    arguments.add_argument("--kills", type=int, help="keeper: how often the server is killed")
    arguments.add_argument(
        "--minutes", type=float, help="soak, chaos, console-soak: how long it takes"
    )
    arguments.add_argument(
        "--seed", type=int, help="keeper, soak, chaos: draws other calls and faults"
    )
    arguments.add_argument(
        "--without",
        choices=["guard", "fence", "two-clocks"],
        help="chaos: take this safeguard away; the run must find faults",
    )
    arguments.add_argument("--writers", type=int, help="writers: how many write at once")
    arguments.add_argument("--seconds", type=float, help="store: how long one round takes")
    return arguments


def plan_of(options: argparse.Namespace, folder: Path) -> Plan:
    plan = quick(folder) if options.quick else Plan(folder)
    changes: dict[str, Any] = {
        "norths": (options.over,) if options.over else None,
        "eras": (options.era,) if options.era else None,
        "routes": tuple(options.routes.split(",")) if options.routes else None,
        "peers": tuple(options.routes.split(",")) if options.routes else None,
        "agents": tuple(options.routes.split(",")) if options.routes else None,
        "rounds": options.rounds,
        "calls": options.calls,
        "store_seconds": options.seconds,
        "writers": options.writers,
        "kills": options.kills,
        "minutes": options.minutes,
        "seed": options.seed,
        "without": options.without,
        "tasks": tuple(options.tasks.split(",")) if options.tasks else None,
        "databases": tuple(options.databases.split(",")) if options.databases else None,
    }
    return replace(plan, **{name: value for name, value in changes.items() if value is not None})


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.parts == [PLOT]:
        return _plot()
    if {PLOT, ALL} & {*options.parts} and len(options.parts) > 1:
        parser().error(f"{PLOT} and {ALL} stand alone")
    # A run that is stopped then stops the processes that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.parts == [ALL]:
        return record_all(options.minutes)
    parts: list[str] = options.parts or [part for part in PARTS if part not in ONLY_BY_NAME]
    busy = [machine.wait_until_quiet(QUIET_SECONDS)] if options.when_quiet else []
    began, load = time.monotonic(), machine.load()
    with tempfile.TemporaryDirectory(prefix="statehold-bench-") as folder:
        plan = plan_of(options, Path(folder))
        tables = {part: _measure(part, plan) for part in parts}
    seconds = time.monotonic() - began
    busy += [machine.wait_until_quiet(END_SECONDS)] if options.when_quiet else []
    about = {
        **machine.describe(),
        "command": _command(arguments or sys.argv[1:]),
        "load_before": load,
        "load_after": machine.load(),
        "seconds": round(seconds, 1),
    }
    if busy:
        about |= {"busy_cores": busy, "quiet": max(busy) < machine.QUIET_CORES}
    targets = against_targets([*tables.values()])
    if targets.rows:
        print(targets.text())
    print("\n" + "\n".join(f"{name}: {value}" for name, value in about.items()))
    if options.json is not None:
        results = {"about": about, "targets": targets.rows}
        results |= {part: table.json() for part, table in tables.items()}
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    tests = [tables[part] for part in parts if part in ONLY_BY_NAME]
    misses = [target for table in tests for target in table.targets if not target.met]
    # At the end, as of a long output the end is kept.
    for miss in misses:
        print(f"\nmissed: {miss.name}\n{miss.evidence}")
    return 1 if misses else 0


def _plot() -> int:
    # Only the group `bench` has the library that draws.
    from .page import charts, text

    for path in (*charts.draw_all(), *text.write_all()):
        print(path)
    return 0


def _command(arguments: Sequence[str]) -> str:
    """Return the command without the file that it writes, which is a path of this machine."""
    command = " ".join(["python -m benchmarks", *arguments])
    return re.sub(r" --json[ =]\S+", "", command)


def _measure(part: str, plan: Plan) -> Table:
    measure = cast("Callable[[Plan], Awaitable[Table]]", module_of(part).measure)
    options = {"use_uvloop": True} if part in ON_UVLOOP and _has_uvloop() else {}
    table = anyio.run(measure, plan, backend_options=options)
    print(table.text(), flush=True)
    return table


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


if __name__ == "__main__":
    sys.exit(main())
