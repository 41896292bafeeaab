"""(p) large: a page of 20,000 elements, with our browser and the peer's in turns."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from ..plan import Plan
from ..report import Table, Target
from ..samples import median, quantile, ratio
from .browsers import Answer, Remote, present, remote
from .site import served

OURS, PEER, QUICK_PEER = "statehold stdio", "peer stdio", "peer stdio settle 0"
BUTTON = "table tr:nth-child(40) button"
TIMES_PEER = {"navigate": 1.0, "click": 0.3, "snapshot": 1.0}

Step = Callable[[Remote, str], Awaitable[Answer]]


async def _navigate(server: Remote, page: str) -> Answer:
    return await server.answer("browser_navigate", {"url": page})


async def _click(server: Remote, page: str) -> Answer:
    return await server.answer("browser_click", {"target": BUTTON, "element": "Buy 39"})


async def _snapshot(server: Remote, page: str) -> Answer:
    return await server.answer("browser_snapshot", {})


STEPS: dict[str, Step] = {"navigate": _navigate, "click": _click, "snapshot": _snapshot}


async def measure(plan: Plan) -> Table:
    table = Table(f"(p) large: ms of an action on a page of {3 * plan.large_refs:,} elements")
    names = present((OURS, PEER, QUICK_PEER), table)
    found: dict[tuple[str, str], list[Answer]] = {(step, n): [] for step in STEPS for n in names}
    shuffled = random.Random(plan.seed)
    with served() as address:
        page = f"{address}/many?refs={plan.large_refs}"
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(remote(name, plan.folder / name.replace(" ", "-")))
                for name in names
            ]
            for number in range(plan.rounds // 2 + 1):
                for server in shuffled.sample(servers, len(servers)):
                    for step, act in STEPS.items():
                        answer = await act(server, page)
                        # The first round starts the browsers.
                        if number:
                            found[step, server.name].append(answer)
    for (step, name), answers in found.items():
        seconds = _seconds(answers)
        peer = _seconds(found[step, PEER]) if PEER in names else None
        table.rows.append(
            {
                "what": step,
                "route": name,
                "p10": quantile(seconds, 0.1) * 1000,
                "p50": median(seconds) * 1000,
                "max": max(seconds) * 1000,
                "x peer": None if peer is None else median(seconds) / median(peer),
                "times": len(seconds),
                "errors": sum(answer.is_error for answer in answers),
            }
        )
        if peer is not None and name == OURS:
            value, low, high = ratio(seconds, peer)
            target = f"{step} on a large page against the peer"
            table.targets.append(Target(target, value, TIMES_PEER[step], "x", between=(low, high)))
    return table


def _seconds(answers: list[Answer]) -> list[float]:
    return [answer.seconds for answer in answers]
