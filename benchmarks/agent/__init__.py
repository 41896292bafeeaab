"""(m) agent: ten tasks on local copies of real kinds of sites, done by a scripted agent through ours and the peer."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..plan import ROOT, Plan, python
from ..processes import free_port, stop
from ..report import Row, Table, Target
from ..samples import median
from .policy import Agent, NotSeen
from .servers import OTHERS, OURS, PEER, SHELL, Cost, Route, Server, missing, served_by
from .site.content import PASSWORD
from .tasks import RECEIPT, SECRET, TASKS, Sites, Task

SECONDS, TOKENS = 0.5, 0.8
"""The most that ours may take of the peer's seconds and tokens, in all tasks together."""
SHELL_TOKENS = 0.7
"""The most that commands may take of the tokens of MCP, with what the model reads of the tools."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task done through one route."""

    route: Route
    task: Task
    success: bool
    cost: Cost
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Total:
    """The sums over some tasks, of the medians over the rounds."""

    done: str
    calls: int
    files: int
    tokens: int
    seconds: float


async def measure(plan: Plan) -> Table:
    table = Table("(q) agent: ten tasks through ours and the peer; medians of the rounds")
    wanted = [one for one in (OURS, PEER, *OTHERS) if one.name in (plan.agents or (one.name,))]
    reasons = {route: missing(route) for route in wanted}
    table.notes += [f"left out: {one.name}: {why}" for one, why in reasons.items() if why]
    routes = [route for route, reason in reasons.items() if reason is None]
    tasks = [task for task in TASKS if not plan.tasks or task.name in plan.tasks]
    attempts: list[Attempt] = []
    listed: dict[Route, int] = {}
    shuffled = random.Random(1)
    for number in range(plan.agent_rounds):
        for route in shuffled.sample(routes, len(routes)):
            folder = plan.folder / f"agent{number}" / route.name.replace(" ", "-")
            found, listed[route] = await _run(route, tasks, folder)
            attempts += found
    for name, some in (*((task.name, [task]) for task in tasks), ("all", tasks)):
        ours, peer = (_total(one, attempts, some) for one in (OURS, PEER))
        table.rows.append(_row(name, ours, peer))
    table.notes += [_note(one, _total(one, attempts, tasks)) for one in OTHERS if one in routes]
    table.notes += [
        f"tool list of {route.name}, once more than this: {listed[route]:,} tokens"
        for route in (OURS, SHELL, PEER)
        if route in listed
    ]
    table.notes += sorted(
        {f"{one.task.name}, {one.route.name}: {note}" for one in attempts for note in one.notes}
    )
    table.targets = [*_targets(attempts, tasks), *_shell_targets(attempts, tasks, listed)]
    return table


async def _run(route: Route, tasks: Sequence[Task], folder: Path) -> tuple[list[Attempt], int]:
    """Do the tasks one after the other through one server, each with an agent that knows nothing yet."""
    with _sites() as url:
        async with served_by(route, folder, {SECRET: PASSWORD}) as server:
            sites = Sites(url, f"http://127.0.0.1:{free_port()}", folder)
            (folder / "receipt.txt").write_text(RECEIPT, encoding="utf-8")
            attempts = [await _attempt(route, task, server, sites) for task in tasks]
            return attempts, server.tools_tokens


async def _attempt(route: Route, task: Task, server: Server, sites: Sites) -> Attempt:
    server.cost, server.texts = Cost(), []
    agent = Agent(server)
    try:
        answer = await task.work(agent, sites)
    except NotSeen as missed:
        return Attempt(route, task, False, server.cost, [*agent.notes, str(missed)])
    success = await task.check(agent, sites, answer)
    if not success:
        agent.notes.append(f"the check failed; the answer was {answer!r}")
    return Attempt(route, task, success, server.cost, agent.notes)


@contextmanager
def _sites() -> Generator[str]:
    """Serve the sites while the block runs; yield their address."""
    process = subprocess.Popen(
        python("-m", "benchmarks.agent.site.server"),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        stop(process)
        if process.stdout is not None:
            process.stdout.close()


def _total(route: Route, attempts: Sequence[Attempt], tasks: Sequence[Task]) -> Total | None:
    by_task = [
        [one for one in attempts if one.route is route and one.task is task] for task in tasks
    ]
    if not all(by_task):
        return None
    everything = [one for rounds in by_task for one in rounds]

    def total(value: Callable[[Cost], float]) -> float:
        return sum(median([value(one.cost) for one in rounds]) for rounds in by_task)

    return Total(
        f"{sum(one.success for one in everything)} of {len(everything)}",
        round(total(lambda cost: cost.calls)),
        round(total(lambda cost: cost.files)),
        round(total(lambda cost: cost.tokens)),
        total(lambda cost: cost.seconds),
    )


def _row(name: str, ours: Total | None, peer: Total | None) -> Row:
    ratios = None if ours is None or peer is None else _ratios(ours, peer)
    return {
        "task": name,
        "done": ours and ours.done,
        "peer": peer and peer.done,
        "calls": ours and ours.calls,
        "peer calls": peer and peer.calls,
        "peer files": peer and peer.files,
        "tokens": ours and ours.tokens,
        "peer tokens": peer and peer.tokens,
        "x tokens": ratios["tokens"] if ratios else None,
        "seconds": ours and ours.seconds,
        "peer seconds": peer and peer.seconds,
        "x seconds": ratios["seconds"] if ratios else None,
    }


def _ratios(ours: Total, peer: Total) -> dict[str, float]:
    return {"tokens": ours.tokens / peer.tokens, "seconds": ours.seconds / peer.seconds}


def _note(route: Route, total: Total | None) -> str:
    assert total is not None
    return (
        f"{route.name}: {total.done} done, {total.calls} calls, {total.files} files, {total.tokens:,} tokens, "
        f"{total.seconds:.2f} seconds"
    )


def _targets(attempts: Sequence[Attempt], tasks: Sequence[Task]) -> Generator[Target]:
    ours, peer = (_total(route, attempts, tasks) for route in (OURS, PEER))
    if ours is None or peer is None:
        return
    failures = {
        route: sum(not one.success for one in attempts if one.route is route)
        for route in (OURS, PEER)
    }
    more = failures[OURS] - failures[PEER]
    yield Target("agent: failures more than the peer's", more, 0, "tasks")
    for name, bound in (("seconds", SECONDS), ("tokens", TOKENS)):
        value = _ratios(ours, peer)[name]
        yield Target(f"agent: {name} of all tasks against the peer", value, bound, "x")


def _shell_targets(
    attempts: Sequence[Attempt], tasks: Sequence[Task], listed: dict[Route, int]
) -> Generator[Target]:
    """Compare commands with MCP: the same tasks in one conversation, each with what it reads of the tools."""
    shell, ours = (_total(route, attempts, tasks) for route in (SHELL, OURS))
    if shell is None or ours is None:
        return
    failures = sum(not one.success for one in attempts if one.route is SHELL)
    more = failures - sum(not one.success for one in attempts if one.route is OURS)
    yield Target("agent: failures by commands more than by MCP", more, 0, "tasks")
    value = (shell.tokens + listed[SHELL]) / (ours.tokens + listed[OURS])
    yield Target("agent: tokens by commands against MCP, with the tools", value, SHELL_TOKENS, "x")
