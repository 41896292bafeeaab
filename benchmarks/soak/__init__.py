"""(l) soak: calls of every kind under kills, stops and a full disk; afterwards nothing may be lost, doubled or left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Final

import anyio

from ..browser.site import served
from ..plan import Era, Plan
from ..report import Table, Target
from .callers import Caller
from .checks import check_processes, check_records, compare_states
from .deployment import Deployment
from .faults import faults_of, run_faults
from .findings import KINDS, Findings
from .orders import Shopper, check_orders, shop
from .orphans import adopt_orphans
from .tasks import TASK_CALLERS, TaskCaller

CALLERS: Final[tuple[tuple[str, Era, bool], ...]] = (
    ("http", "modern", True),
    ("http", "legacy", True),
    ("stdio", "modern", True),
    ("stdio", "legacy", False),
    ("http", "modern", False),
    ("http", "legacy", False),
)
"""Transport and era of each caller, and whether it uses the browser."""
SHOPPERS: Final = 2
"""Sessions whose pages order all the time."""


async def measure(plan: Plan) -> Table:
    """Run the soak and return its findings; each kind of fault that was found is a missed target."""
    adopt_orphans()
    findings, random = Findings(), Random(plan.seed)
    with ExitStack() as stack:
        site = stack.enter_context(served())
        open_shop = stack.enter_context(shop(plan.seed))
        deployment = stack.enter_context(Deployment(plan.folder / "soak", findings))
        await deployment.start()
        callers = [
            Caller(number, way, deployment, findings, site, Random(random.random()))
            for number, way in enumerate(CALLERS)
        ]
        shoppers = [
            Shopper(number, deployment, open_shop, findings, Random(random.random()))
            for number in range(SHOPPERS if deployment.has_browser else 0)
        ]
        task_callers = [
            TaskCaller(
                number,
                lambda: random.choice(deployment.nodes).url,
                lambda request: deployment.command("approvals", "approve", request, "--yes"),
                findings,
                Random(random.random()),
            )
            for number in range(TASK_CALLERS)
        ]
        order = Random(random.random())
        async with anyio.create_task_group() as tasks:
            for caller in (*callers, *shoppers, *task_callers):
                tasks.start_soon(caller.run)
            faults = faults_of(deployment, order)
            await run_faults(faults, findings, order, plan.minutes * 60)
            for caller in (*callers, *shoppers, *task_callers):
                caller.stop()
        await compare_states(deployment.url, callers, findings)
        await deployment.stop()
        await check_processes(findings)
        check_records(deployment, findings)
        check_orders(open_shop, findings)
    return table_of(
        findings,
        "soak",
        f"(l) soak: {plan.minutes:g} minutes, seed {plan.seed}; what must not happen",
    )


def table_of(findings: Findings, part: str, title: str) -> Table:
    """Return the findings as a table, with a target for each kind of fault."""
    table = Table(title)
    for kind in KINDS:
        texts = findings.of(kind)
        table.rows.append({"what": kind, "found": len(texts)})
        evidence = "\n".join(texts[:5])
        table.targets.append(Target(f"{part}: {kind}", len(texts), 0, "", evidence=evidence))
    format_counts: Callable[[dict[str, int]], str] = lambda counts: ", ".join(  # noqa: E731
        f"{name} {count}" for name, count in sorted(counts.items())
    )
    table.notes.append(f"calls: {format_counts(findings.calls)}")
    table.notes.append(f"longest wait for an answer: {findings.longest_wait:.1f} s")
    table.notes.append(f"faults: {format_counts(findings.faults)}")
    table.notes += findings.remarks
    return table
