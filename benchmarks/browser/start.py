"""(n) start: from the start of a server on stdio to the answer of `tools/list`."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import anyio.to_thread

from ..plan import Plan
from ..report import Table, Target
from ..samples import median, quantile, ratio
from .browsers import peer_command, possible, statehold_command
from .listing import list_tools

FIRST, AGAIN, PINNED, PEER = "statehold, first start", "statehold", "statehold --session", "peer"
SHARED = "statehold --shared"
"""A client of a background server that runs already."""
ROUTES = (FIRST, AGAIN, PINNED, SHARED, PEER)
TIMES_PEER = 1.8
SHARED_MS = 100.0


async def measure(plan: Plan) -> Table:
    table = Table("(n) start: from the start of the process to the answer of tools/list, in ms")
    found: dict[str, list[float]] = {name: [] for name in ROUTES}
    if (reason := possible("peer stdio", small=True)) is not None:
        table.notes.append(f"left out: {reason}")
        del found[PEER]
    shuffled = random.Random(plan.seed)
    for number in range(2 * plan.browser_starts):
        for name in shuffled.sample(list(found), len(found)):
            command, folder = _command(name, plan.folder / "start", number)
            listing = await anyio.to_thread.run_sync(list_tools, command, folder)
            # The first turn fills the caches of the machine.
            if number:
                found[name].append(listing.seconds)
    await anyio.to_thread.run_sync(_stop_server, plan.folder / "start")
    for name, seconds in found.items():
        peer = found.get(PEER)
        table.rows.append(
            {
                "route": name,
                "p10": quantile(seconds, 0.1) * 1000,
                "p50": median(seconds) * 1000,
                "max": max(seconds) * 1000,
                "x peer": None if peer is None else median(seconds) / median(peer),
                "times": len(seconds),
            }
        )
        if name == SHARED:
            target = "start to tools/list with a running server"
            table.targets.append(Target(target, median(seconds) * 1000, SHARED_MS, "ms"))
        elif peer is not None and name != PEER:
            value, low, high = ratio(seconds, peer)
            target = f"start to tools/list against the peer ({name})"
            table.targets.append(Target(target, value, TIMES_PEER, "x", between=(low, high)))
    return table


def _command(name: str, folder: Path, number: int) -> tuple[list[str], Path]:
    """Return the command of a server, and its folder: a new one for each first start."""
    if name == PEER:
        folder /= "peer"
        folder.mkdir(parents=True, exist_ok=True)
        return peer_command(None), folder
    folder /= f"first{number}" if name == FIRST else "shared" if name == SHARED else "statehold"
    options = {PINNED: ["--session", "work"], SHARED: ["--shared"]}
    return [*statehold_command(folder, None), *options.get(name, [])], folder


def _stop_server(folder: Path) -> None:
    """Stop the background server that the first client with --shared started."""
    command, shared = _command(SHARED, folder, 0)
    subprocess.run([*command, "stop"], cwd=shared, check=True, capture_output=True)
