"""The processor time of viewers, and the agent's calls while a viewer watches, in turns with those that nobody watches."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio

from ..browser.latency import MEDIUM, SMALL
from ..browser.painting import PATH
from ..browser.site import served
from ..plan import Plan
from ..processes import cpu_seconds, family
from ..report import Row, Target
from ..samples import median, quantile, ratio, undisturbed
from .serving import Serving, serving
from .viewers import viewers

CORES, TEN, SLOWER = 0.25, 1.3, 1.1
NOBODY, ONE, ALL, TILE = (0, 10), (1, 10), (10, 10), (1, 1)
"""Numbers of viewers, and the pictures a second that each asks for; the overview asks for one."""
WATCHED: Final = (NOBODY, ONE, ALL, TILE)
RATES: Final = (0, 10, 60)
"""Paints of the page in a second."""
SETTLE_SECONDS: Final = 1.0


@dataclass(slots=True)
class Use:
    """The cores that a server and its browsers took, and the pictures per second of each viewer."""

    server: float
    browsers: float
    pictures: float
    kilobytes: float

    @property
    def all(self) -> float:
        return self.server + self.browsers


Viewers = tuple[int, int]
Uses = dict[tuple[int, Viewers], list[Use]]
"""By paints a second, and by viewers."""


async def measure(plan: Plan) -> tuple[list[Row], list[Row], list[Target]]:
    """Return the rows of the processor time, those of the calls, and the targets of both."""
    uses: Uses = {}
    calls: dict[tuple[str, bool], list[float]] = {}
    with served() as site:
        async with serving(plan.folder / "console-cost") as server:
            created = await server.agent.call("session_create", {"name": "watched"})
            session_id = created["session_id"]
            for _ in range(plan.watch_rounds):
                for rate in RATES:
                    await _open(server, session_id, f"{site}{PATH}?hz={rate}")
                    for watched in WATCHED:
                        use = await _use(server, session_id, watched, plan.watch_seconds)
                        uses.setdefault((rate, watched), []).append(use)
            for turn in range(plan.watch_rounds * 4):
                count = turn % 2
                async with viewers(server, session_id, count):
                    await _calls(server, session_id, site, plan, calls, is_watched=bool(count))
    rows = [_row(rate, watched, uses) for rate, watched in uses]
    call_rows, targets = _compare(calls)
    return rows, call_rows, [*_targets(uses), *targets]


async def _open(server: Serving, session_id: str, url: str) -> None:
    await server.agent.call("browser_navigate", {"session_id": session_id, "url": url})
    await anyio.sleep(SETTLE_SECONDS)


async def _use(server: Serving, session_id: str, watched: Viewers, seconds: float) -> Use:
    count, fps = watched
    async with viewers(server, session_id, count, fps=fps) as pictures:
        await anyio.sleep(SETTLE_SECONDS)
        processes = family(server.pid, server.data)
        others = [process.pid for process in processes if process.pid != server.pid]
        own, rest, began = read_clocks([server.pid]), read_clocks(others), time.monotonic()
        await anyio.sleep(seconds)
        taken = time.monotonic() - began
        server_cpu, others_cpu = seconds_since(own), seconds_since(rest)
    each = pictures.frames / max(1, count) / (taken + SETTLE_SECONDS)
    size = pictures.bytes / max(1, pictures.frames) / 1000
    return Use(server_cpu / taken, others_cpu / taken, each, size)


def read_clocks(pids: list[int]) -> dict[int, float]:
    """Return the processor seconds of those processes that still run."""
    clocks: dict[int, float] = {}
    for pid in pids:
        with suppress(OSError):
            clocks[pid] = cpu_seconds([pid])
    return clocks


def seconds_since(before: dict[int, float]) -> float:
    """Return the processor seconds that processes used since their clocks were read, without those that ended."""
    return sum(now - before[pid] for pid, now in read_clocks([*before]).items())


def _middle(uses: list[Use]) -> Use:
    """Return the use with the median of all cores."""
    return sorted(uses, key=lambda use: use.all)[len(uses) // 2]


def _extra(uses: Uses, rate: int, watched: Viewers) -> float:
    """Return the cores that viewers take more than the page without one: the median of the differences in each round."""
    pairs = zip(uses[rate, watched], uses[rate, NOBODY], strict=True)
    return median([use.all - alone.all for use, alone in pairs])


def _row(rate: int, watched: Viewers, uses: Uses) -> Row:
    use = _middle(uses[rate, watched])
    count, fps = watched
    return {
        "paints/s": rate,
        "viewers": count,
        "fps": fps if count else None,
        "server": use.server,
        "browser": use.browsers,
        "more than without": _extra(uses, rate, watched) if count else None,
        "pictures/s": use.pictures if count else None,
        "KB": use.kilobytes if count else None,
        "rounds": len(uses[rate, watched]),
    }


def _targets(uses: Uses) -> Generator[Target]:
    for rate in RATES[1:]:
        one, ten = _extra(uses, rate, ONE), _extra(uses, rate, ALL)
        page = f"a page of {rate} paints/s"
        yield Target(f"console: one viewer of {page}", one, CORES, "cores")
        yield Target(f"console: ten viewers of {page} against one", ten / one, TEN, "x")


async def _calls(
    server: Serving,
    session_id: str,
    site: str,
    plan: Plan,
    calls: dict[tuple[str, bool], list[float]],
    *,
    is_watched: bool,
) -> None:
    """Time calls of an agent."""

    async def timed(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
        began = time.perf_counter()
        answer = await server.agent.call(tool, {"session_id": session_id, **arguments})
        calls.setdefault((name, is_watched), []).append(time.perf_counter() - began)
        return answer

    with undisturbed():
        for _ in range(plan.watched_calls):
            await timed("navigate", "browser_navigate", url=f"{site}{MEDIUM}")
            await timed("snapshot", "browser_snapshot")
            await timed("navigate small", "browser_navigate", url=f"{site}{SMALL}")
            await timed("click", "browser_click", target="button >> nth=0", element="Increment")
            await timed("evaluate", "browser_evaluate", function="() => 1 + 1")


def _compare(calls: dict[tuple[str, bool], list[float]]) -> tuple[list[Row], list[Target]]:
    rows: list[Row] = []
    targets: list[Target] = []
    for name in dict.fromkeys(name for name, _ in calls):
        watched, alone = calls[name, True], calls[name, False]
        value, low, high = ratio(watched, alone)
        rows.append(
            {
                "call": name,
                "p50": median(alone) * 1e3,
                "p50 watched": median(watched) * 1e3,
                "p95": quantile(alone, 0.95) * 1e3,
                "p95 watched": quantile(watched, 0.95) * 1e3,
                "x p50": value,
                "calls": len(alone) + len(watched),
            }
        )
        name = f"console: {name} while watched"
        targets.append(Target(name, value, SLOWER, "x", between=(low, high)))
    return rows, targets
