"""The parts of pages that come from the runs.

docs/reference/benchmarks.md has results, measurements and missed targets; README.md and docs/compare.md have the
figures that a newcomer comes for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ..parts import PARTS
from ..plan import ROOT
from ..report import Cell, format_cell
from .runs import Run, Runs, read_runs

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
README = ROOT / "README.md"
COMPARISON = ROOT / "docs" / "compare.md"
FIRST = ("hop", "density", "start", "agent", "keeper")
"""The parts whose runs have the figures for newcomers; they are of one day."""


def results(runs: Runs) -> str:
    """Return the figures that a reader comes for, one sentence each."""
    hop, agent, keeper, failover = (runs[name] for name in ("hop", "agent", "keeper", "failover"))
    density, crowd, store, browser = (
        runs[name] for name in ("density", "crowd", "store", "browser")
    )

    def times(route: str, over: str) -> str:
        rows = hop.rows_with(route=route, over=over)
        return f"{_range(row['x p10'] for row in rows)} times"

    def tasks(column: str) -> tuple[str, str]:
        ours, peer = (agent.number(f"{who}{column}", task="all") for who in ("", "peer "))
        return format_cell(ours), format_cell(peer)

    def write(database: str) -> str:
        cells = {"database": database, "what": "fenced write", "writers": 100}
        return format_cell(store.number("per second", **cells))

    def gap(what: str) -> str:
        return format_cell(failover.number("longest gap, s", what=what))

    calls, tokens, seconds = tasks("calls"), tasks("tokens"), tasks("seconds")
    live = density.number("USS per session", state="live")
    paused = density.number("USS per session", state="paused, never opened")
    lost = sum(
        _number(row[column])
        for row in keeper.rows
        for column in ("counters reset", "answers lost", "double runs")
    )
    found = sum(_number(row["found"]) for row in runs["chaos"].rows)
    click = browser.number("p50", what="click", route="peer stdio") / browser.number(
        "p50", what="click", route="statehold stdio"
    )
    access, timing = runs["access"], runs["timing"]
    areas = sorted(_number(row["AUC"]) for row in timing.rows)
    lookup = max(
        access.number("us", what=f"verifying a cached token ({kind})")
        for kind in ("JWT", "opaque", "static")
    )
    check = access.measured("audit verify of 100,000 entries, with the start")
    required = access.number("more than off, ms", what="a call with audit required, 1 at once")
    elsewhere = "kill -9, taken over on another machine, lease of 10 s"
    return _bullets(
        f"Over stdio a call takes {times('statehold', 'stdio')} as long as a direct one (p10), through the "
        f"FastMCP proxy {times('fastmcp', 'stdio')}; over HTTP {times('statehold', 'http')} and "
        f"{times('fastmcp', 'http')}.",
        f"A live session takes {format_cell(live)} KiB of the process, a paused one {format_cell(paused)} KiB.",
        f"Ten tasks in a browser take {tokens[0]} tokens, {calls[0]} calls and {seconds[0]} seconds; with "
        f"`@playwright/mcp` {tokens[1]} tokens, {calls[1]} calls and {seconds[1]} seconds.",
        f"A click is {click:.1f} times as fast as with `@playwright/mcp` at its defaults. One more idle session with a "
        f"browser takes {crowd.measured('one more idle session'):g} MiB.",
        f"SQLite takes {write('sqlite')} durable writes per second, PostgreSQL {write('postgresql')} (100 writers).",
        f"{keeper.title.partition(': ')[2].capitalize()}: {lost:g} counters reset, answers lost or calls run twice.",
        f"A session answers {gap('kill -9, taken over on the same machine')} seconds after its node was killed, and "
        f"{gap(elsewhere)} seconds on another machine with a lease of 10 s.",
        f"A session of another principal is answered as one that does not exist, also in time: an AUC of {areas[0]:.2f} "
        f"to {areas[-1]:.2f} in {len(areas)} kinds of requests, 2,000 answers about each.",
        f"A token that was verified before takes {lookup:.1f} us of a call. A required audit log adds {required:.2f} ms to "
        f"it, and `audit verify` reads 100,000 entries in {check:.2f} seconds.",
        f"{runs['chaos'].title.partition(': ')[2].partition(',')[0].capitalize()} of chaos in a cluster of three "
        f"nodes: {found:g} faults found.",
    )


def measurements(runs: Runs) -> str:
    """Return a table with a row per part."""
    lines = ["| part | day | load | met |", "| --- | --- | --- | --- |"]
    for part in PARTS:
        run = runs.get(part)
        cells = [f"`{part}`", "no run yet", "", ""]
        if run is not None:
            cells[0] = f"[`{part}`](../../benchmarks/runs/{part}.json)"
            met = len(run.targets) - len(run.missed_targets)
            cells[1] = run.day or "not recorded"
            cells[2] = format_cell(run.load)
            cells[3] = f"{met} of {len(run.targets)}" if run.targets else "none set"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def misses(runs: Runs) -> str:
    """Return a table of the targets that were missed, with the reasons."""
    lines = ["| part | missed | reason |", "| --- | --- | --- |"]
    for part, run in runs.items():
        if run.missed_targets:
            reason = run.missed or "not explained yet"
            lines.append(f"| `{part}` | {'; '.join(_missed(run))} | {reason} |")
    return "\n".join(lines)


def _missed(run: Run) -> Iterable[str]:
    """Yield the missed targets, those that differ in their scenario only as one."""
    alike: dict[tuple[str, str], list[dict[str, str]]] = {}
    for target in run.missed_targets:
        name = re.sub(r" \(.*\)$", "", target["target"])
        alike.setdefault((name, target["bound"]), []).append(target)
    for (name, bound), targets in alike.items():
        if len(targets) == 1:
            name, measured = targets[0]["target"], targets[0]["measured"]
        else:
            values = sorted((target["measured"] for target in targets), key=_first_number)
            measured = f"{values[0].strip()} to {values[-1].strip()} ({len(values)} scenarios)"
        yield f"{name.removeprefix(f'{run.part}: ')}: {measured.strip()}, {bound.strip()}"


def _range(cells: Iterable[Cell]) -> str:
    numbers = sorted(_number(cell) for cell in cells)
    return f"{numbers[0]:.2f} to {numbers[-1]:.2f}"


def _number(cell: Cell) -> float:
    assert isinstance(cell, float | int)
    return cell


def _first_number(text: str) -> float:
    return float(text.split()[0].replace(",", ""))


def _bullets(*sentences: str) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def figures(runs: Runs) -> str:
    """Return a table with one row, for the README."""
    hop, start, agent = _small_calls(runs["hop"], "stdio"), _starts(runs["start"]), runs["agent"]
    tokens = [format_cell(agent.number(f"{who}tokens", task="all")) for who in ("", "peer ")]
    seconds = [f"{agent.number(f'{who}seconds', task='all'):.1f}" for who in ("", "peer ")]
    kills, losses, _ = _kills(runs["keeper"])
    cells = {
        "a small call over stdio": f"{hop[0]} ms (direct {hop[1]}, FastMCP's proxy {hop[2]})",
        "ten tasks in a browser": f"{tokens[0]} tokens, {seconds[0]} s (`@playwright/mcp`: {tokens[1]}, {seconds[1]} s)",
        f"{kills} times `kill -9` under load": losses,
        "a client starts beside others": f"{start[0]} s (`@playwright/mcp`: {start[2]} s)",
        "a paused session": f"{runs['density'].measured('memory of a paused session'):g} KiB of memory",
    }
    rows = (list(cells), ["---"] * len(cells), list(cells.values()))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def comparison(runs: Runs) -> str:
    """Return sentences that compare with peers in one run each."""
    agent, keeper = runs["agent"], runs["keeper"]
    first, running, alone = (_starts(runs["start"])[number] for number in (1, 0, 2))
    kills, losses, unknown = _kills(keeper)
    tasks = [row for row in agent.rows if row["task"] != "all"]
    more = sum(_number(row["x tokens"]) > 1 for row in tasks)

    def all_tasks(who: str) -> str:
        numbers = [
            format_cell(agent.number(f"{who}{column}", task="all"))
            for column in ("tokens", "calls", "seconds")
        ]
        return "{} tokens, {} calls and {} seconds".format(*numbers)

    calls = [
        "{} takes {} ms, directly {} ms, through FastMCP's proxy {} ms".format(
            over, *_small_calls(runs["hop"], key)
        )
        for key, over in (("stdio", "stdio"), ("http", "HTTP"))
    ]
    again = keeper.measured("keeper: first call, p50 (stdio, 2026-07-28)")
    page = keeper.measured("keeper: first call, p50 (browser, a counting page)")
    return _bullets(
        f"A small call (p50) over {calls[0]}; over {calls[1]}.",
        f"{len(tasks)} browser tasks of a scripted agent take {all_tasks('')}; with `@playwright/mcp` {all_tasks('peer ')}. "
        f"{more} of the {len(tasks)} tasks take more tokens with Statehold.",
        f"The first client has its tools {first} seconds after its start, a client beside a running server after {running} "
        f"seconds, one with `@playwright/mcp` after {alone} seconds (p50).",
        f"{kills} times `kill -9` of the server under load: {losses}; {unknown} calls got `outcome_unknown`. The first call "
        f"after a start took {again:g} seconds, in a page {page:g} seconds (p50).",
    )


def _small_calls(hop: Run, over: str) -> list[str]:
    """Return the milliseconds of a small call through Statehold, directly and through the FastMCP proxy."""
    cells: dict[str, Cell] = {"over": over, "era": "modern", "result": "small", "at once": 1}
    routes = ("statehold", "direct", "fastmcp")
    return [f"{hop.number('p50', route=route, **cells):.1f}" for route in routes]


def _starts(start: Run) -> list[str]:
    """Return the seconds of a client of a running server, of a first client and of one of the peer."""
    routes = ("statehold --shared", "statehold, first start", "peer")
    return [f"{start.number('p50', route=route) / 1000:.2f}" for route in routes]


def _kills(keeper: Run) -> tuple[str, str, str]:
    """Return how often the server was killed, what was lost, and how many outcomes were unknown."""
    [kills] = re.findall(r"(\d+) kills", keeper.title)
    losses = [
        f"{sum(_number(row[column]) for row in keeper.rows):g} {words}"
        for column, words in (
            ("counters reset", "counters reset"),
            ("answers lost", "answers lost"),
            ("double runs", "calls run twice"),
        )
    ]
    unknown = sum(_number(row["outcome unknown"]) for row in keeper.rows)
    return kills, ", ".join(losses), f"{unknown:g}"


WRITTEN: dict[Path, dict[str, Callable[[Runs], str]]] = {
    PAGE: {"results": results, "measurements": measurements, "missed targets": misses},
    README: {"figures": figures},
    COMPARISON: {"figures": comparison},
}


def written(path: Path, page: str, runs: Runs) -> str:
    """Return a page with its parts from the runs.

    Raises:
        ValueError: The page has no place for one of them.
    """
    for name, write in WRITTEN[path].items():
        before, start, rest = page.partition(f"<!-- {name}: from benchmarks/runs -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->\n")
        if not start or not end:
            raise ValueError(f"{path.name} has no place for its {name}")
        page = f"{before}{start}\n{write(runs)}\n\n{end}{after}"
    return page


def write_all() -> list[Path]:
    """Write the figures into the pages, and return their paths."""
    runs = read_runs()
    for path in WRITTEN:
        path.write_text(written(path, path.read_text(encoding="utf-8"), runs), encoding="utf-8")
    return list(WRITTEN)
