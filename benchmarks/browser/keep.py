"""(h) keep: the time that a session with a browser takes to pause, and to resume after a pause, a crash and a restart."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import cast

import psutil

from ..asking import Asking
from ..plan import Plan
from ..processes import upstreams_of
from ..report import Row, Table, Target
from ..samples import median, quantile
from .browsers import possible
from .crowds import serving
from .site import served

PAGE = "/counter"
HOSTS = ("127.0.0.1", "127.0.0.2", "localhost")
"""Each is a site of its own, with storage of its own."""
BOUNDS = {"pause": 150.0, "resume": 250.0, "browser killed": 1000.0, "server started again": 1500.0}
"""Upper bounds of the median in ms, with up to three tabs."""
RARELY = {"pause": 500.0, "resume": 1000.0}
"""Upper bounds of the 95th percentile in ms."""
KILOBYTES = 64.0


async def measure(plan: Plan) -> Table:
    table = Table("(h) keep: ms of session_pause, and of the first call after what happened")
    if (reason := possible("statehold http")) is not None:
        table.notes.append(f"left out: {reason}")
        return table
    folder = plan.folder / "kept"
    with served() as site:
        async with serving(folder) as (pid, asking):
            # Another session keeps the browser process running, as on any server in use.
            other = _Kept(asking, await _created(asking))
            await other.open(site, 1)
            sessions: dict[int, str] = {}
            for tabs in (1, 3, 5):
                kept = _Kept(asking, await _created(asking))
                await kept.open(site, tabs)
                await _paused(table, kept, tabs, plan.rounds * 3)
                sessions[tabs] = kept.session
            browsers = partial(upstreams_of, pid, folder / "data")
            await _killed(table, other, browsers, max(3, plan.rounds // 2))
        await _restarted(table, plan, kept.session)
    with closing(sqlite3.connect(next((folder / "data").glob("*.db")))) as database:
        for row in table.rows:
            if row["what"] == "pause":
                row["bytes on disk"] = _bytes(database, sessions[cast("int", row["tabs"])])
    most = max(cast("int", row["bytes on disk"] or 0) for row in table.rows)
    table.targets.append(Target("a paused session on disk", most / 1000, KILOBYTES, "kB"))
    return table


def _bytes(database: sqlite3.Connection, session: str) -> int:
    query = "SELECT max(length(data)) FROM snapshot WHERE session_id = ?"
    (found,) = database.execute(query, [session]).fetchone()
    return found


class _Kept:
    """A session that is opened, paused and resumed."""

    def __init__(self, asking: Asking, session: str) -> None:
        self.session = session
        self._asking = asking

    async def call(self, tool: str, **given: object) -> float:
        """Call a tool and return how many seconds it took."""
        began = time.perf_counter()
        await self._asking.call(tool, {"session_id": self.session, **given})
        return time.perf_counter() - began

    async def back(self) -> float:
        return await self.call("browser_evaluate", function="() => localStorage.getItem('who')")

    async def open(self, site: str, tabs: int) -> None:
        for number in range(tabs):
            if number:
                await self.call("browser_tabs", action="new")
            url = site.replace("127.0.0.1", HOSTS[number % len(HOSTS)]) + PAGE
            await self.call("browser_navigate", url=url)
            await self.call("browser_evaluate", function="() => localStorage.setItem('who', 'ada')")


async def _created(asking: Asking) -> str:
    return (await asking.call("session_create", {}))["session_id"]


async def _paused(table: Table, kept: _Kept, tabs: int, times: int) -> None:
    pauses: list[float] = []
    resumes: list[float] = []
    for _ in range(times):
        pauses.append(await kept.call("session_pause"))
        resumes.append(await kept.back())
    _add(table, "pause", tabs, pauses)
    _add(table, "resume", tabs, resumes)


async def _killed(
    table: Table, kept: _Kept, processes: Callable[[], list[psutil.Process]], times: int
) -> None:
    taken: list[float] = []
    for _ in range(times):
        found = [child for child in processes() if "headless" in child.name()]
        os.kill(min(found, key=lambda child: child.create_time()).pid, signal.SIGKILL)
        taken.append(await _usable(kept))
    _add(table, "browser killed", 1, taken)


async def _usable(kept: _Kept) -> float:
    began = time.perf_counter()
    while True:
        try:
            await kept.back()
        except RuntimeError as error:
            # It was sent before the death was noticed.
            if "outcome_unknown" not in str(error):
                raise
        else:
            return time.perf_counter() - began


async def _restarted(table: Table, plan: Plan, session: str) -> None:
    taken: list[float] = []
    for _ in range(3):
        async with serving(plan.folder / "kept") as (_, asking):
            taken.append(await _Kept(asking, session).back())
    _add(table, "server started again", 5, taken)


def _add(table: Table, what: str, tabs: int, taken: list[float]) -> None:
    p50 = median(taken) * 1000
    row: Row = {
        "what": what,
        "tabs": tabs,
        "p50": p50,
        "p95": quantile(taken, 0.95) * 1000,
        "times": len(taken),
        "bytes on disk": None,
    }
    table.rows.append(row)
    if tabs <= 3 or what not in ("pause", "resume"):
        table.targets.append(Target(f"{what}, {tabs} tabs", p50, BOUNDS[what], "ms"))
        if what in RARELY:
            p95 = quantile(taken, 0.95) * 1000
            table.targets.append(Target(f"{what}, {tabs} tabs, p95", p95, RARELY[what], "ms"))
