"""scale: the same requests on a store of 1,000 sessions and on a large one, in turns."""

from __future__ import annotations

from ..plan import Plan
from ..report import Table, Target
from ..samples import median
from . import requests, starts
from .filling import SMALL, Database, filled

RATIO = 1.5


async def measure(plan: Plan) -> Table:
    table = Table(f"scale: ms (median) with {SMALL:,} stored sessions and with many, in turns")
    for kind, count in plan.many:
        if kind.partition(",")[0] not in plan.databases:
            continue
        async with filled(plan, kind, count) as databases:
            if not databases:
                table.notes.append(f"{kind} is not installed: python tests/peers/install.py")
                continue
            waits = await requests.measure(plan, databases)
            if not databases[0].is_sealed:
                waits |= await starts.measure(plan, databases)
            _add_rows(table, kind, databases, waits)
    table.notes.append(
        "half of the sessions have one owner, the others have owners of 100; 9 of 10 are paused, the rest is closed"
    )
    return table


def _add_rows(
    table: Table, kind: str, databases: list[Database], waits: dict[str, dict[int, list[float]]]
) -> None:
    for what, by_count in waits.items():
        few, many = (median(by_count[each.count]) for each in databases)
        table.rows.append(
            {
                "database": kind,
                "what": what,
                "sessions": databases[-1].count,
                f"{SMALL:,}": round(few * 1e3, 3),
                "many": round(many * 1e3, 3),
                "x": round(many / few, 2),
            }
        )
        if what not in requests.GROWING:
            name = f"{what}, {databases[-1].count:,} sessions ({kind})"
            table.targets.append(Target(name, many / few, RATIO, "x"))
