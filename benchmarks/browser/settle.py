"""(m) settle: whether the answer of an action shows an effect that comes later, and the time it takes."""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import anyio

from ..plan import Plan
from ..report import Row, Table, Target
from ..samples import median
from .browsers import Answer, Remote, present, remote
from .effects import EFFECT, EFFECTS, NOTHING, Effect
from .site import served

BALANCED = "statehold stdio balanced"
ROUTES = (
    "statehold stdio fast",
    BALANCED,
    "statehold stdio patient",
    "peer stdio",
    "peer stdio settle 0",
)
SEEN = 100.0
NOTHING_MS = 60.0
NOTHING_TIMES = 5
"""Clicks on the page that does nothing for each action on another page."""
LATE_SECONDS = 0.5
"""Seconds until a late effect is there, when an action did not wait for it: it would disturb the next navigation."""

_SNAPSHOT = re.compile(r"```yaml\n.*?```", re.DOTALL)
_HINT = re.compile(r"\bstill\b|going on|pending|not finished|may change", re.IGNORECASE)
"""Words of an answer, outside of the snapshot, that say that the page was not at rest."""


@dataclass(slots=True)
class Found:
    """The answers to one action by one server."""

    seconds: list[float] = field(default_factory=list[float])
    seen: int = 0
    hints: int = 0
    """Answers without the effect that say that something was still going on."""

    def add(self, answer: Answer) -> None:
        self.seconds.append(answer.seconds)
        if EFFECT in answer.whole:
            self.seen += 1
        elif _HINT.search(_SNAPSHOT.sub("", answer.text)):
            self.hints += 1

    @property
    def cell(self) -> str:
        times, ms = len(self.seconds), median(self.seconds) * 1000
        seen = "yes" if self.seen == times else f"{self.seen} of {times}" if self.seen else "no"
        return f"{seen}{', hint' if self.hints else ''} {ms:.0f}"


Results = Mapping[str, Mapping[str, Found]]
"""By server and by page."""


async def measure(plan: Plan) -> Table:
    effects = EFFECTS[: plan.settle_pages]
    table = Table(f"(m) settle: effects that come after the action, on {len(effects)} pages")
    names = present(ROUTES, table)
    found = {name: {page.name: Found() for page in (NOTHING, *effects)} for name in names}
    shuffled = random.Random(plan.seed)
    with served() as site:
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(remote(name, plan.folder / name.replace(" ", "-")))
                for name in names
            ]
            for server in servers:
                await _act(server, NOTHING, site, Found())
            for _ in range(plan.settle_rounds):
                for page in (*([NOTHING] * NOTHING_TIMES), *effects):
                    for server in shuffled.sample(servers, len(servers)):
                        await _act(server, page, site, found[server.name][page.name])
    table.rows = [_row(name, pages) for name, pages in found.items()]
    table.details = Table(
        "Whether the answer shows the effect, and the ms of the action",
        [
            {"page": page.name, **{name: found[name][page.name].cell for name in names}}
            for page in effects
        ],
    )
    table.targets += _targets(found)
    return table


async def _act(server: Remote, page: Effect, site: str, found: Found) -> None:
    await server.call("browser_navigate", {"url": site + page.path})
    answer = await server.answer(page.tool, dict(page.arguments))
    assert not answer.is_error, f"{server.name}: {page.name}: {answer.text}"
    found.add(answer)
    if EFFECT not in answer.whole:
        await anyio.sleep(LATE_SECONDS)
    if "alert" in page.name:
        await server.answer("browser_handle_dialog", {"accept": True})


def _row(name: str, pages: Mapping[str, Found]) -> Row:
    effects = [found for page, found in pages.items() if page != NOTHING.name]
    times = sum(len(found.seconds) for found in effects)
    medians = [median(found.seconds) for found in effects]
    return {
        "route": name,
        "seen %": 100 * sum(found.seen for found in effects) / times,
        "hint %": 100 * sum(found.hints for found in effects) / times,
        "neither %": 100 * sum(_without_sign(found) for found in effects) / times,
        "median ms": median(medians) * 1000,
        "total s": sum(medians),
        "does nothing, ms": median(pages[NOTHING.name].seconds) * 1000,
    }


def _without_sign(found: Found) -> int:
    return len(found.seconds) - found.seen - found.hints


def _targets(found: Results) -> Generator[Target]:
    if (ours := found.get(BALANCED)) is None:
        return
    row = _row(BALANCED, ours)
    seen, nothing = row["seen %"], row["does nothing, ms"]
    assert isinstance(seen, float)
    assert isinstance(nothing, float)
    yield Target("effects seen, balanced", seen, SEEN, "%", ceiling=False)
    yield Target("click on a page that does nothing, balanced", nothing, NOTHING_MS, "ms")
