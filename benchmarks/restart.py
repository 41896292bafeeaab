"""(d) The time of a start with many stored sessions, and their cost while they are not used."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import anyio

from .asking import Asking
from .gateways import http_server, statehold, statehold_config
from .plan import QUICK, ROOT, Plan, python
from .processes import cpu_seconds, free_port
from .report import Row, Table, Target

START_SECONDS = 2.0
IDLE_PERCENT = 1.0
SETTLE_SECONDS = 2.0


async def measure(plan: Plan) -> Table:
    table = Table("(d) restart: seconds from the start of the process to an answer over HTTP")
    for count in plan.stored:
        for ending in ("paused", "crashed") if count else ("paused",):
            starts = [
                await _start(
                    plan, plan.folder / f"restart-{ending}-{count}-{number}", count, ending
                )
                for number in range(plan.starts)
            ]
            table.rows.append(_row(count, ending, starts))
    _add_targets(table, max(plan.stored))
    return table


def _row(count: int, ending: str, starts: list[dict[str, float | None]]) -> Row:
    best = {key: _least([start[key] for start in starts]) for key in starts[0]}
    return {
        "stored": count,
        "left by": "a clean stop" if ending == "paused" else "kill -9",
        "session_list": best["listed"],
        "one session": best["known"],
        "all known": best["all"],
        "CPU": best["cpu"],
        "idle CPU %": best["idle"],
        "starts": len(starts),
    }


def _least(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return round(min(measured), 3) if measured else None


def _add_targets(table: Table, most: int) -> None:
    for row in table.rows:
        if row["stored"] == most:
            known, idle = row["all known"], row["idle CPU %"]
            assert isinstance(known, float)
            assert isinstance(idle, float)
            what = f"{most:,} sessions, left by {row['left by']}"
            table.targets.append(Target(f"known again: {what}", known, START_SECONDS, "s"))
            table.targets.append(Target(f"idle CPU: {what}", idle, IDLE_PERCENT, "%"))


async def _start(plan: Plan, folder: Path, count: int, ending: str) -> dict[str, float | None]:
    """Start on a folder with sessions; return the seconds until each answer."""
    data, port = folder / "data", free_port()
    config = statehold_config(folder, QUICK)
    if count:
        _fill(data, count, ending)
    began = time.monotonic()
    with http_server(statehold(data, config, "serve", "--port", str(port)), folder) as process:
        async with Asking(port) as asking:
            await asking.first("session_list", {"limit": 50})
            list_seconds = time.monotonic() - began
            info_seconds = all_seconds = list_seconds
            if count:
                page = await asking.call("session_list", {"limit": 1, "name": f"s{count - 1}"})
                await asking.call("session_info", {"session_id": page["sessions"][0]["session_id"]})
                info_seconds = time.monotonic() - began
                await _all(asking, count)
                all_seconds = time.monotonic() - began
            cpu = cpu_seconds([process.pid])
            idle = (
                await _idle(process.pid, plan.idle_seconds) if count == max(plan.stored) else None
            )
    return {
        "listed": list_seconds,
        "known": info_seconds,
        "all": all_seconds,
        "cpu": cpu,
        "idle": idle,
    }


async def _idle(pid: int, seconds: float) -> float:
    """Return the share of one core, in percent, that a process uses while it gets no requests."""
    await anyio.sleep(SETTLE_SECONDS)
    before = cpu_seconds([pid])
    await anyio.sleep(seconds)
    return (cpu_seconds([pid]) - before) / seconds * 100


async def _all(asking: Asking, count: int) -> None:
    """Wait until every stored session can be resumed: the last of those a dead process held is paused."""
    with anyio.fail_after(60):
        while await _still_open(asking):  # noqa: ASYNC110 - another process sets no event
            await anyio.sleep(0.01)


async def _still_open(asking: Asking) -> bool:
    filters = {"limit": 1, "statuses": ["idle", "active", "creating"]}
    return bool((await asking.call("session_list", filters))["sessions"])


def _fill(data: Path, count: int, ending: str) -> None:
    data.mkdir(parents=True, mode=0o700)
    command = python("-m", "benchmarks.filling", data, str(count), ending)
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True, timeout=120)
