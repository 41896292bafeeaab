"""Replacements of the server under load: no connection is refused, no call fails, and each answer comes soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import anyio

from ..report import Row, Table, Target
from .callers import Caller, Kind, count_losses
from .server import KilledServer

PAUSE_SECONDS: Final = (0.2, 1.0)
"""Seconds between the end of an old server and the next replacement."""
GAP_MS: Final = 50.0


async def replace_repeatedly(
    server: KilledServer, callers: Sequence[Caller], random: Random, replacements: int
) -> None:
    """Replace the server while the callers call. Their measurements count from here on."""
    for caller in callers:
        caller.begin_phase()
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(caller.run)
        for _ in range(replacements):
            await anyio.sleep(random.uniform(*PAUSE_SECONDS))
            await server.replace()
        for caller in callers:
            caller.stop()


def replacement_table(
    kinds: Sequence[Kind], callers: Sequence[Caller], runs: Counter[str], replacements: int
) -> Table:
    """Return the calls of each kind since replace_repeatedly() began, with the targets.

    The columns `counters reset` and `double runs` count from the first call of the callers on.
    """
    table = Table(f"{replacements} replacements of the server under the same load")
    for kind in kinds:
        ours = [caller for caller in callers if caller.kind is kind]
        losses = count_losses(ours, runs)
        row: Row = {
            "upstream": kind.name,
            "calls": sum(len(caller.seconds) for caller in ours),
            "failed": sum(caller.failures for caller in ours),
            "notices": sum(caller.notices for caller in ours),
            **losses,
            "longest, ms": round(
                max((s for caller in ours for s in caller.seconds), default=0.0) * 1e3
            ),
        }
        table.rows.append(row)
        for column in ("failed", "notices", *losses):
            count = row[column]
            assert isinstance(count, int)
            table.targets.append(Target(f"replacement: {column} ({kind.name})", count, 0, ""))
        if not kind.is_slow:
            longest = row["longest, ms"]
            assert isinstance(longest, int)
            name = f"replacement: longest answer ({kind.name})"
            table.targets.append(Target(name, longest, GAP_MS, "ms"))
    return table


__all__ = ["replace_repeatedly", "replacement_table"]
