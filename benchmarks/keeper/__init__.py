"""(v) keeper: kill -9 of a server under load; its processes go on, no call with an operation id is lost or runs twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio

from ..asking import Asking
from ..hop import Scenario, in_turns
from ..plan import Plan
from ..processes import cpu_seconds, keeper_of, pss
from ..report import Row, Table, Target
from ..route import open_route
from ..samples import median, quantile, ratio
from ..soak.checks import check_processes
from ..soak.findings import Findings
from ..soak.orphans import adopt_orphans
from .callers import Caller, Kind, count_losses
from .server import SHORT_LINGER_SECONDS, KilledServer

COMMAND: Final = {"command": "sleep 2; echo done"}
KINDS: Final = (
    Kind("stdio, 2026-07-28", "quick_inc", sessions=3),
    Kind("stdio, 2025-11-25", "old_inc", sessions=2),
    Kind("notebook", "notebook_count", logs=False),
    Kind("shell, commands of 2 s", "shell_run", COMMAND, sessions=2),
    Kind("HTTP, 2026-07-28", "web_inc", over_http=True),
    Kind("HTTP, 2025-11-25", "oldweb_inc", over_http=True),
    Kind(
        "browser, a counting page",
        "browser_evaluate",
        {"function": "() => ++count"},
        sessions=2,
        over_http=True,
        logs=False,
        preparation="() => { count = 0; }",
    ),
)
PAUSE_SECONDS: Final = (0.0, 0.6)
"""Seconds between the first call after a start and the next kill."""
EARLY_SHARE: Final = 0.2
"""The share of the starts that are killed before they end."""
EARLY_SECONDS: Final = (0.1, 1.0)

FIRST_SECONDS: Final = 0.15
FIRST_BROWSER_SECONDS: Final = 0.5
KEEPER_MIB: Final = 12.0
CPU_RATIO: Final = 1.01
ROUNDS, CALLS = 3, 4
"""Factors over the numbers of `hop`: the difference to measure is a hundredth."""
ON, OFF = "statehold", "no keeper"


async def measure(plan: Plan) -> Table:
    """Kill the server, and return the losses; each is a missed target."""
    adopt_orphans()
    title = f"(v) keeper: {plan.kills} kills of the server under load, seed {plan.seed}"
    table, findings, random = Table(title), Findings(), Random(plan.seed)
    with closing(KilledServer(plan.folder / "keeper")) as server:
        await server.start_upstreams()
        await server.start()
        callers = [
            Caller(kind, f"caller{position}-{number}", server.port, Random(random.random()))
            for position, kind in enumerate(KINDS)
            for number in range(kind.sessions)
        ]
        first_calls = await _kill_repeatedly(server, callers, random, plan.kills)
        await _add_keeper(table, server.data, plan.idle_seconds)
        _add_losses(table, callers, _runs(server.read_truth()))
        _add_first_calls(table, first_calls)
        await _leave_running(server, callers)
        await check_processes(findings, ("--transport http",))
    orphans = findings.of("orphans")
    table.notes += [f"orphan: {text}" for text in orphans[:5]]
    table.targets.append(Target("keeper: orphans after linger", len(orphans), 0, ""))
    table.details = await _compare(plan, table)
    return table


async def _kill_repeatedly(
    server: KilledServer, callers: Sequence[Caller], random: Random, kills: int
) -> dict[str, list[float]]:
    """Kill and start the server under load; return the seconds from each start to the answer of a further caller.

    There is one such caller for a stdio upstream and one for a browser, by the names of their kinds.
    """
    firsts = {
        kind.name: Caller(kind, f"first {kind.tool}", server.port, Random(0))
        for kind in (KINDS[0], KINDS[-1])
    }
    waits: dict[str, list[float]] = {name: [] for name in firsts}
    async with Asking(server.port) as asking, anyio.create_task_group() as tasks:
        for caller in (*callers, *firsts.values()):
            await caller.open(asking)
        for caller in callers:
            tasks.start_soon(caller.run)
        killed = 0
        while killed < kills:
            await anyio.sleep(random.uniform(*PAUSE_SECONDS))
            await server.kill()
            killed += 1
            if killed < kills and random.random() < EARLY_SHARE:
                with anyio.move_on_after(random.uniform(*EARLY_SECONDS)):
                    await server.start()
                await server.kill()
                killed += 1
            await server.start()
            began = anyio.current_time()
            async with anyio.create_task_group() as first_calls:
                for name, first in firsts.items():
                    first_calls.start_soon(_call_first, first, asking, waits[name], began)
        for caller in callers:
            caller.stop()
    for first in firsts.values():
        assert [*first.counts.values()] == [*range(1, first.sent + 1)], first
    return waits


async def _call_first(first: Caller, asking: Asking, waits: list[float], began: float) -> None:
    await first.call(asking)
    waits.append(anyio.current_time() - began)


async def _leave_running(server: KilledServer, callers: Sequence[Caller]) -> None:
    """Kill the server for good while a command runs, which may not outlive the linger time."""
    shell = next(caller for caller in callers if "shell" in caller.kind.name)
    arguments = {"session_id": shell.session, "command": "sleep 600", "operation": "left"}
    await server.kill()
    await server.start(SHORT_LINGER_SECONDS)

    async def run() -> None:
        async with Asking(server.port) as asking:
            await asking.call(shell.kind.tool, arguments)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not _runs(server.read_truth())["left"]:  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await server.kill()


def _runs(truth: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return how often each operation ran."""
    return Counter(
        entry["arguments"]["operation"]
        for entry in truth
        if "event" not in entry and "operation" in (entry.get("arguments") or {})
    )


def _add_losses(table: Table, callers: Sequence[Caller], runs: Counter[str]) -> None:
    for kind in KINDS:
        ours = [caller for caller in callers if caller.kind is kind]
        lost = [operation for caller in ours for operation in caller.lost(runs)]
        losses = count_losses(ours, runs)
        row: Row = {
            "upstream": kind.name,
            "sessions": len(ours),
            "calls": sum(caller.sent for caller in ours),
            "repeats": sum(caller.repeats for caller in ours),
            "notices": sum(caller.notices for caller in ours),
            "counters reset": losses["counters reset"],
            "outcome unknown": sum(len(caller.unknown) for caller in ours),
            "answers lost": losses["answers lost"],
            "double runs": losses["double runs"],
        }
        table.rows.append(row)
        table.targets += [
            Target(f"keeper: {column} ({kind.name})", count, 0, "")
            for column, count in losses.items()
        ]
        table.notes += [f"lost: {operation}" for operation in lost[:5]]
    for caller in callers:
        table.notes += [f"{caller.tag}: {text}" for text in caller.errors]
        table.notes += [f"no answer: {operation}" for operation in caller.unanswered]


def _add_first_calls(table: Table, waits: Mapping[str, Sequence[float]]) -> None:
    for (name, seconds), bound in zip(
        waits.items(), (FIRST_SECONDS, FIRST_BROWSER_SECONDS), strict=True
    ):
        p50 = quantile(seconds, 0.5)
        table.notes.append(
            f"first call ({name}) after {len(seconds)} starts: p50 {p50:.3f} s, "
            f"p90 {quantile(seconds, 0.9):.3f} s, longest {max(seconds):.3f} s after the server serves"
        )
        table.targets += [
            Target(f"keeper: first call, p50 ({name})", p50, bound, "s"),
            Target(f"keeper: first call, longest ({name})", max(seconds), bound, "s"),
        ]


async def _add_keeper(table: Table, data: Path, idle_seconds: float) -> None:
    """Add the memory of the keeper, and its processor time while no process starts or ends."""
    keeper = keeper_of(data)
    assert keeper is not None
    children, mib = len(keeper.children()), pss(keeper.pid) / 2**20
    before = cpu_seconds([keeper.pid])
    await anyio.sleep(idle_seconds)
    used = cpu_seconds([keeper.pid]) - before
    table.notes.append(
        f"the keeper holds {children} processes: {mib:.1f} MiB (PSS), "
        f"{used * 1e6:.0f} us of CPU in {idle_seconds:g} s without a call"
    )
    table.targets += [
        Target("keeper: memory (PSS)", mib, KEEPER_MIB, "MiB"),
        Target("keeper: CPU without a call", used * 1e6, 0, "us"),
    ]


async def _compare(plan: Plan, table: Table) -> Table:
    """Return calls over a server with the keeper and over one without it, in turns."""
    details = Table("keeper on against off, us of CPU of the gateway per call, p50 in ms")
    longer = replace(
        plan,
        rounds=plan.rounds * ROUNDS,
        calls=plan.calls * CALLS,
        scenario_seconds=plan.scenario_seconds * CALLS,
    )
    async with AsyncExitStack() as stack:
        routes = [
            await stack.enter_async_context(
                open_route(name, "http", "modern", plan.folder / f"keeper {name}")
            )
            for name in (ON, OFF)
        ]
        for at_once in (1, 8):
            scenario = Scenario("small", at_once, "inc", {}, longer.calls * min(at_once, 2))
            results = await in_turns(routes, scenario, longer, Random(1))
            on, off = results[ON], results[OFF]
            value, low, high = ratio(on.gateway, off.gateway)
            p50 = {name: quantile(result.latencies, 0.5) for name, result in results.items()}
            details.rows.append(
                {
                    "at once": at_once,
                    "CPU on": round(median(on.gateway) * 1e6, 1),
                    "CPU off": round(median(off.gateway) * 1e6, 1),
                    "x CPU": round(value, 3),
                    "p50 on": round(p50[ON] * 1e3, 3),
                    "p50 off": round(p50[OFF] * 1e3, 3),
                    "calls": len(on.latencies) + len(off.latencies),
                }
            )
            name = f"keeper: CPU per call, on over off ({at_once} at once)"
            table.targets.append(Target(name, value, CPU_RATIO, "x", between=(low, high)))
    return details


__all__ = ["measure"]
