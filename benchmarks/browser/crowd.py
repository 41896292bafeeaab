"""(g) crowd: the memory of one more session with a browser, and the call rate of many at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AsyncExitStack
from typing import NamedTuple

import anyio

from ..plan import Plan
from ..processes import proportional
from ..report import Row, Table, Target
from ..samples import median
from .browsers import possible
from .crowds import Crowd, Rate, opened
from .site import served

SETTLE_SECONDS = 2.0
MIB_PER_SESSION, MIB_PER_WHOLE = 20.0, 30.0
PER_GIB, WHOLE_PER_GIB = 50.0, 33.0
MIB_PER_PAUSED = 1.0
"""A paused session holds no memory, but processes do not give all freed memory back."""
TOGETHER = ("statehold http", "playwright")
"""The servers whose sessions are called all at once, in turns."""
AGAINST_PLAYWRIGHT = {"evaluate": 0.4, "navigate": 40 / 54}
"""Calls per second of all sessions at once, as a multiple of those of Playwright alone."""
COLUMNS = ("evaluate/s", "server us", "all us", "clients us", "navigate/s")
"""The columns of the rates, which stay empty where none was measured; the processor time is that of a call of evaluate."""

Rates = dict[str, dict[str, float]]
"""Calls per second, by action and server."""


class Each(NamedTuple):
    """The memory of one more session in MiB: a moment after its last call, after some idle time, and paused."""

    in_use: float
    idle: float
    paused: float | None


async def measure(plan: Plan) -> Table:
    table = Table("(g) crowd: MiB of all processes (PSS), and calls per second of all sessions")
    if (reason := possible("statehold http")) is not None:
        table.notes.append(f"left out: {reason}")
        return table
    with served() as site:
        ours = await _grown(table, "statehold http", plan, site, plan.browsers)
        found = {"statehold http": ours}
        # More sessions add no information and do not fit every machine.
        few = tuple(n for n in plan.browsers if n <= 10)
        for name in ("statehold http whole", "peer http", "peer http settle 0"):
            if (reason := possible(name)) is not None:
                table.notes.append(f"left out: {reason}")
                continue
            found[name] = await _grown(table, name, plan, site, few)
        found["playwright"] = await _grown(table, "playwright", plan, site, plan.browsers)
        rates = await _at_once(table, plan, site)
    table.notes.append(
        "server us: microseconds of CPU of one call of evaluate in the process that drives the browser; all us: with the "
        "driver and the browser; clients us: in the clients, which are four processes for Statehold"
    )
    table.targets.extend(_targets(found, rates))
    return table


def _targets(found: dict[str, Each], rates: Rates) -> Generator[Target]:
    ours, peer = found["statehold http"], found.get("peer http")
    bounds = {
        "statehold http": ("", MIB_PER_SESSION, PER_GIB),
        "statehold http whole": (", whole Chromium", MIB_PER_WHOLE, WHOLE_PER_GIB),
    }
    for name, (kind, most, per_gib) in bounds.items():
        if name in found:
            idle = found[name].idle
            yield Target(f"one more idle session{kind}", idle, most, "MiB")
            yield Target(f"idle sessions per GiB{kind}", 1024 / idle, per_gib, "", ceiling=False)
    if ours.paused is not None:
        yield Target("one more paused session", max(0.0, ours.paused), MIB_PER_PAUSED, "MiB")
    for what, bound in AGAINST_PLAYWRIGHT.items():
        rate, bare = (rates[what][name] for name in TOGETHER)
        name = f"{what} in all sessions at once against Playwright"
        yield Target(name, rate / bare, bound, "x", ceiling=False)
    if peer is not None:
        ratio = ours.in_use / peer.in_use
        yield Target("one more session in use against the peer", ratio, 1 / 3, "x")


async def _grown(table: Table, name: str, plan: Plan, site: str, counts: tuple[int, ...]) -> Each:
    """Open more and more sessions of one server. Returns the cost of each besides the first."""
    first, each, settle = 0.0, [0.0], _settle(plan)
    paused: float | None = None

    def add(route: str, count: int, idle: float | None) -> Row:
        nonlocal first
        size = proportional(crowd.processes()) / 2**20
        first = first or size
        each.append((size - first) / max(1, count - counts[0]))
        more = each[-1] if count > counts[0] else None
        table.rows.append(_row(route, count, idle, size, more))
        return table.rows[-1]

    async with opened(name, plan, site) as crowd:
        for count in counts:
            await crowd.grow(count)
            idles = [settle]
            if count == counts[-1]:
                idles.append(plan.browsers_idle_seconds)
            for idle in idles:
                await anyio.sleep(idle)
                row = add(name, count, idle)
                row |= _cells(await crowd.rate("evaluate", count, plan.browsers_seconds))
        in_use, idle = each[-2:]
        if crowd.pause is not None:
            for number in range(counts[0], counts[-1]):
                await crowd.pause(number)
            await anyio.sleep(settle)
            add(f"{name}, paused", counts[-1], None)
            paused = each[-1]
    return Each(in_use, idle, paused)


async def _at_once(table: Table, plan: Plan, site: str) -> Rates:
    """Call in many sessions of ours and of Playwright alone at once, the two in turns."""
    count, settle = plan.browsers_at_once, _settle(plan)
    found: dict[tuple[str, str], list[Rate]] = {}
    async with AsyncExitStack() as stack:
        crowds: dict[str, Crowd] = {}
        for name in TOGETHER:
            crowds[name] = await stack.enter_async_context(opened(name, plan, site))
            await crowds[name].grow(count)
            await crowds[name].rate("evaluate", count, 0)
        await anyio.sleep(settle)
        sizes = {name: proportional(crowd.processes()) / 2**20 for name, crowd in crowds.items()}
        for what in AGAINST_PLAYWRIGHT:
            for _ in range(plan.browsers_rounds):
                for name, crowd in crowds.items():
                    rate = await crowd.rate(what, count, plan.browsers_seconds)
                    found.setdefault((what, name), []).append(rate)
    table.notes += [
        f"{name}: {failed} calls of {what} failed"
        for (what, name), counted in found.items()
        if (failed := sum(rate.failed for rate in counted))
    ]
    rates = {
        what: {name: median([rate.per_second for rate in found[what, name]]) for name in TOGETHER}
        for what in AGAINST_PLAYWRIGHT
    }
    for name in TOGETHER:
        row = _row(f"{name}, in turns", count, settle, sizes[name], None)
        middle = sorted(found["evaluate", name])[plan.browsers_rounds // 2]
        row |= {**_cells(middle), "navigate/s": rates["navigate"][name]}
        table.rows.append(row)
    return rates


def _settle(plan: Plan) -> float:
    return min(SETTLE_SECONDS, plan.browsers_idle_seconds)


def _row(route: str, count: int, idle: float | None, size: float, more: float | None) -> Row:
    row: Row = {"route": route, "sessions": count, "idle s": idle, "MiB": size}
    return {**row, "MiB each more": more, **dict.fromkeys(COLUMNS)}


def _cells(rate: Rate) -> Row:
    """Return the columns of the rate of evaluate."""
    return {
        "evaluate/s": rate.per_second,
        "server us": rate.server,
        "all us": rate.whole,
        "clients us": rate.clients,
    }
