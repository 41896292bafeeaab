"""(t) chaos: three nodes on machines of their own under faults of nodes, database, network and clocks.

Afterwards no upstream may have seen an older owner after a newer one, and nothing acknowledged may be lost.
"""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import Final

import anyio

from ..browser.site import MODULE as SITE_MODULE
from ..browser.site import served
from ..plan import Era, Plan
from ..report import Table
from ..servers import PostgreSQL
from ..soak import SHOPPERS, table_of
from ..soak.callers import Caller
from ..soak.checks import (
    check_order,
    check_processes,
    check_records,
    compare_states,
    read_truth,
)
from ..soak.faults import Fault, run_faults
from ..soak.findings import Findings
from ..soak.orders import Shop, Shopper, check_orders, shop
from ..soak.orphans import adopt_orphans
from ..soak.tasks import TASK_CALLERS, TaskCaller, guarded_service
from .cluster import TRUTH, Cluster
from .faults import ClusterFaults
from .plain import PlainSession
from .watch import Watch

CALLERS: Final[tuple[tuple[str, Era, bool], ...]] = (
    ("http", "modern", True),
    ("http", "legacy", True),
    ("http", "modern", False),
    ("http", "modern", False),
    ("http", "legacy", False),
    ("http", "legacy", False),
)
"""Transport and era of each caller, and whether it uses the browser."""
PLAIN_SESSIONS: Final = 4
ANSWER_SECONDS: Final = 30.0
SHORT_LEASE: Final = 4.0
LONG_LEASE: Final = 10.0
LONG_RUN_MINUTES: Final = 10.0
CONTROLS: Final = {
    "guard": "long freeze",
    "fence": "long freeze",
    "two-clocks": "database clock ahead",
}
"""The fault that shows that a safeguard is missing."""
OURS: Final = (SITE_MODULE, "relay_process.py", "postgres", "haproxy")


async def measure(plan: Plan) -> Table:
    """Run the faults and return the findings; each kind of fault that was found is a missed target."""
    title = f"(t) chaos: {plan.minutes:g} minutes, seed {plan.seed}; what must not happen"
    if not PostgreSQL.installed():
        return Table(title, notes=["PostgreSQL is not installed: python tests/peers/install.py"])
    adopt_orphans()
    findings, random = Findings(), Random(plan.seed)
    lease = SHORT_LEASE if plan.minutes < LONG_RUN_MINUTES else LONG_LEASE
    with ExitStack() as stack:
        site = stack.enter_context(served())
        open_shop = stack.enter_context(shop(plan.seed))
        folder = plan.folder / "chaos"
        cluster = Cluster(
            folder,
            findings,
            lease_seconds=lease,
            without=plan.without,
            more_services=guarded_service(folder / TRUTH),
        )
        async with cluster.run():
            await _run(plan, cluster, site, open_shop, random)
        check_orders(open_shop, findings)
    return table_of(findings, "chaos", title)


async def _run(plan: Plan, cluster: Cluster, site: str, open_shop: Shop, random: Random) -> None:
    findings = cluster.findings
    callers = [
        Caller(
            number,
            way,
            cluster,
            findings,
            site,
            Random(random.random()),
            answer_seconds=ANSWER_SECONDS,
        )
        for number, way in enumerate(CALLERS)
    ]
    sessions = [
        PlainSession(number, cluster.nodes, findings, Random(random.random()))
        for number in range(PLAIN_SESSIONS)
    ]
    order = Random(random.random())
    shoppers = [
        Shopper(number, cluster, open_shop, findings, Random(random.random()))
        for number in range(SHOPPERS if cluster.has_browser else 0)
    ]
    task_callers = [
        TaskCaller(
            number,
            lambda: cluster.url,
            cluster.approval_command,
            findings,
            Random(random.random()),
        )
        for number in range(TASK_CALLERS)
    ]
    everybody = (*callers, *sessions, *shoppers, *task_callers)
    async with anyio.create_task_group() as watching:
        watching.start_soon(Watch(cluster).run)
        async with anyio.create_task_group() as tasks:
            for caller in everybody:
                tasks.start_soon(caller.run)
            faults = _faults(ClusterFaults(cluster, order), plan.without)

            def is_over() -> bool:
                return plan.without is not None and _is_caught(cluster)

            await run_faults(faults, findings, order, plan.minutes * 60, is_over)
            for caller in everybody:
                caller.stop()
        watching.cancel_scope.cancel()
    await compare_states(cluster.url, callers, findings)
    await cluster.stop()
    await check_processes(findings, OURS)
    check_records(cluster, findings)


def _faults(faults: ClusterFaults, without: str | None) -> dict[str, Fault]:
    """Return all faults, or the one that the safeguard which was taken away protects from."""
    if without is None:
        return faults.all
    kind = CONTROLS[without]
    return {kind: faults.all[kind]}


def _is_caught(cluster: Cluster) -> bool:
    """Whether the missing safeguard has shown already."""
    found = Findings()
    check_order(read_truth(cluster), found)
    return bool(found.of("interleaved owners") or cluster.findings.of("stale writes"))
