"""(u) failover: seconds without an answer after the death of a node, and while the nodes are restarted in turn."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.lowlevel
import httpx2

from ..asking import Asking
from ..browser.bare import opened
from ..browser.site import served
from ..plan import QUICK, Plan
from ..report import Table, Target
from ..servers import PostgreSQL
from ..soak.findings import Findings
from .cluster import Cluster
from .proxy import find_program

SAME_MACHINE_SECONDS: Final = 0.5
BEYOND_LEASE_SECONDS: Final = 5.5
LEASES: Final = (4.0, 10.0)
GAPS: Final = {"recipe": 0.3, "state": 0.3, "browser": 1.5}
SESSIONS: Final = 2
"""Sessions of each kind during the restarts."""
REST_SECONDS: Final = 0.02
SETTLE_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 60.0
KEPT: Final = """\
[services.kept]
command = {python}
args = {quick}
prefix = "kept_"
[services.kept.recipe]
checkpoint = 0.5
restores = "the count"
[[services.kept.recipe.save]]
tool = "get"
keep = {{ count = "/count" }}
[[services.kept.recipe.restore]]
tool = "inc"
arguments = {{ n = "{{count}}" }}
"""

KINDS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("recipe", "kept_inc", {}),
    ("state", "state_update", {"values": {"written": True}}),
    ("browser", "browser_evaluate", {"function": "() => document.cookie"}),
)
"""Each caller: its subject, its tool, and the arguments of its calls."""

Call = Callable[[], Awaitable[object]]


async def measure(plan: Plan) -> Table:
    table = Table("(u) failover: seconds until the next answer of a session")
    if not PostgreSQL.installed():
        table.notes.append("PostgreSQL is not installed: python tests/peers/install.py")
        return table
    await _measure_deaths(table, plan, 1, LEASES[0], SAME_MACHINE_SECONDS)
    for lease in LEASES[: plan.failover_rounds]:
        await _measure_deaths(table, plan, 3, lease, lease + BEYOND_LEASE_SECONDS)
    if find_program() is None:
        table.notes.append("restarts: left out, haproxy is not installed")
    else:
        await _measure_restarts(table, plan)
    return table


def _cluster(plan: Plan, name: str, lease: float, machines: int) -> Cluster:
    kept = KEPT.format(python=json.dumps(sys.executable), quick=json.dumps([str(QUICK)]))
    return Cluster(
        plan.folder / name,
        Findings(),
        lease_seconds=lease,
        follow=False,
        machines=machines,
        more_services=kept,
    )


async def _measure_deaths(
    table: Table, plan: Plan, machines: int, lease: float, bound: float
) -> None:
    where = "the same machine" if machines == 1 else f"another machine, lease of {lease:g} s"
    cluster = _cluster(plan, f"failover-{machines}-{lease:g}", lease, machines)
    async with cluster.run():
        gaps = [await _measure_death(cluster) for _ in range(plan.failover_rounds)]
        await cluster.stop()
    what = f"kill -9, taken over on {where}"
    table.rows.append(
        {"what": what, "calls": len(gaps), "errors": None, "longest gap, s": round(max(gaps), 2)}
    )
    table.targets.append(Target(f"failover: {what}", max(gaps), bound, "s"))


async def _measure_death(cluster: Cluster) -> float:
    """Kill the owner of a session for good, and return the seconds until another node answers for it."""
    owner, other = cluster.nodes[:2]
    # Started again on its machine, it would find by its lock that it had died.
    owner.may_start = anyio.Event()
    async with Asking(owner.port) as asking:
        session = (await asking.call("session_create", {}))["session_id"]
        await asking.call("inc", {"session_id": session})
    gap = 0.0
    async with Asking(other.port, ANSWER_SECONDS) as asking, anyio.create_task_group() as tasks:
        await asking.call("inc", {"session_id": session})
        began = time.monotonic()
        tasks.start_soon(cluster.end, owner, signal.SIGKILL, -signal.SIGKILL)
        await anyio.lowlevel.checkpoint()
        await _answered(lambda: asking.call("inc", {"session_id": session}))
        gap = time.monotonic() - began
        owner.may_start.set()
    return gap


async def _answered(call: Call) -> None:
    """Repeat a call until it has an answer without an error."""
    with anyio.fail_after(ANSWER_SECONDS):
        while True:
            try:
                await call()
            except RuntimeError:
                await anyio.sleep(REST_SECONDS)
            else:
                return


@dataclass(slots=True)
class _Caller:
    """Calls one tool of one session over and over, through the proxy."""

    kind: str
    tool: str
    arguments: dict[str, Any]
    calls: int = 0
    longest: float = 0.0
    errors: list[str] = field(default_factory=list[str])

    async def run(self, port: int) -> None:
        async with Asking(port, ANSWER_SECONDS) as asking:
            while True:
                began = time.monotonic()
                try:
                    await asking.call(self.tool, self.arguments)
                except (RuntimeError, httpx2.TransportError, ValueError) as error:
                    self.errors.append(f"{self.tool}: {error!r}"[:300])
                self.longest = max(self.longest, time.monotonic() - began)
                self.calls += 1
                await anyio.sleep(REST_SECONDS)


async def _measure_restarts(table: Table, plan: Plan) -> None:
    cluster = _cluster(plan, "restarts", LEASES[0], 3)
    floor: float | None = None
    with served() as site:
        async with cluster.run():
            port = int(cluster.url.rpartition(":")[2].partition("/")[0])
            callers = await _create_callers(cluster, port, site)
            async with anyio.create_task_group() as tasks:
                for caller in callers:
                    tasks.start_soon(caller.run, port)
                await anyio.sleep(SETTLE_SECONDS)
                floor = await _measure_first_browser(site) if cluster.has_browser else None
                for node in cluster.nodes:
                    await anyio.sleep(SETTLE_SECONDS)
                    await cluster.end(node, signal.SIGTERM, 0)
                await anyio.sleep(SETTLE_SECONDS)
                tasks.cancel_scope.cancel()
            await cluster.stop()
    for kind, bound in GAPS.items():
        ours = [caller for caller in callers if caller.kind == kind]
        if not ours:
            continue
        errors = [error for caller in ours for error in caller.errors]
        longest = max(caller.longest for caller in ours)
        table.rows.append(
            {
                "what": f"restart of all nodes: {kind}",
                "calls": sum(caller.calls for caller in ours),
                "errors": len(errors),
                "longest gap, s": round(longest, 2),
            }
        )
        table.notes += errors[:3]
        table.targets.append(Target(f"restart: errors ({kind})", len(errors), 0, ""))
        table.targets.append(Target(f"restart: longest gap ({kind})", longest, bound, "s"))
    if floor is not None:
        what = "first browser of Playwright alone, same load"
        table.rows.append(
            {"what": what, "calls": 1, "errors": None, "longest gap, s": round(floor, 2)}
        )


async def _measure_first_browser(site: str) -> float:
    """Return the seconds in which Playwright answers in a browser of a process that had none: the floor of a cold node."""
    began = time.monotonic()
    async with opened() as playwright:
        await playwright.call("browser_navigate", {"url": f"{site}/counter"})
        return time.monotonic() - began


async def _create_callers(cluster: Cluster, port: int, site: str) -> list[_Caller]:
    callers: list[_Caller] = []
    async with Asking(port, ANSWER_SECONDS) as asking:
        for kind, tool, arguments in KINDS:
            if kind == "browser" and not cluster.has_browser:
                continue
            for _ in range(SESSIONS):
                session = (await asking.call("session_create", {}))["session_id"]
                if kind == "browser":
                    page = {"session_id": session, "url": f"{site}/counter"}
                    await asking.call("browser_navigate", page)
                more = {"session_id": session, **arguments}
                for node in cluster.nodes:
                    # A node that was just started learns the tools of its services.
                    async with Asking(node.port, ANSWER_SECONDS) as direct:
                        await _answered(lambda: direct.call(tool, more))  # noqa: B023 - awaited here
                callers.append(_Caller(kind, tool, more))
    return callers
