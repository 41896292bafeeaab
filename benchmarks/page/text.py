"""The parts of pages that come from the runs.

docs/reference/benchmarks.md has results, measurements and missed targets, benchmarks/runs/README.md the rows; README.md
and docs/compare.md have the figures that a newcomer comes for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ..parts import PARTS
from ..plan import ROOT
from ..report import format_cell
from .charts import charts
from .runs import FOLDER, Run, Runs, is_published, read_runs
from .sentences import SENTENCES, fill, number, sentence

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
README = ROOT / "README.md"
COMPARISON = ROOT / "docs" / "compare.md"
TABLES = FOLDER / "README.md"
FIRST = ("hop", "density", "start", "agent", "keeper")
"""The parts whose runs have the figures for newcomers; they are of one day."""
TOP = (
    *("hop", "density", "agent", "browser", "crowd", "store", "keeper"),
    *("failover", "timing", "access", "chaos"),
)
"""The parts whose sentences stand at the top of the page."""


def results(runs: Runs) -> str:
    """Return the figures that a reader comes for, one sentence each, and the parts that have none to publish."""
    left_out = [f"`{part}`" for part in TOP if not is_published(runs, part)]
    lines = [sentence(runs[part]) for part in TOP if is_published(runs, part)]
    if left_out:
        lines.append(
            f"Not here, as the machine was not quiet or there is no run: {', '.join(left_out)}."
        )
    return _bullets(*lines)


def pictures(runs: Runs) -> str:
    """Return the charts with their captions."""
    return "\n\n".join(
        f"{chart.caption}\n\n![{chart.alternative}](../pictures/{chart.path.name})"
        for chart in charts(runs)
    )


def measurements(runs: Runs) -> str:
    """Return a table with a row per part."""
    lines = ["| part | in one line | day | version | load | met |", "| --- " * 6 + "|"]
    for part in PARTS:
        run = runs.get(part)
        cells = [f"`{part}`", "no run yet", "", "", "", ""]
        if run is not None:
            met = len(run.targets) - len(run.missed_targets)
            cells = [
                f"[`{part}`](../../benchmarks/runs/{part}.json)",
                sentence(run),
                run.day or "not recorded",
                run.version,
                format_cell(run.load) + ("" if run.is_quiet else ", not quiet"),
                f"{met} of {len(run.targets)}" if run.targets else "none set",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tables(runs: Runs) -> str:
    """Return the rows of all runs."""
    blocks: list[str] = []
    for part, run in runs.items():
        machine = "" if run.is_quiet else ", while the machine was not quiet"
        blocks.append(
            f"## {part}\n\n{run.title}. Measured on {run.day or 'a day not recorded'}{machine}."
        )
        names = list(run.rows[0])
        lines = [names, ["---"] * len(names)]
        lines += [[format_cell(row.get(name)) for name in names] for row in run.rows]
        blocks.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
    return "\n\n".join(blocks)


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


def _first_number(text: str) -> float:
    return float(text.split()[0].replace(",", ""))


def _bullets(*sentences: str) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _small(over: str, route: str) -> str:
    """Return the field with the milliseconds of a small call."""
    return f"{{p50|over={over}, era=modern, result=small, at once=1, route={route}}}"


FIGURES = {
    "a small call over stdio": (
        "hop",
        (
            f"{_small('stdio', 'statehold')} ms (direct {_small('stdio', 'direct')}, FastMCP's proxy "
            f"{_small('stdio', 'fastmcp')})"
        ),
    ),
    "ten tasks in a browser": (
        "agent",
        (
            "{tokens|task=all} tokens, {seconds|task=all} s (`@playwright/mcp`: {peer tokens|task=all}, "
            "{peer seconds|task=all} s)"
        ),
    ),
    "killed under load": ("keeper", SENTENCES["keeper"].removesuffix(".")),
    "a client starts beside others": (
        "start",
        "{p50|route=statehold --shared} ms (`@playwright/mcp`: {p50|route=peer} ms)",
    ),
    "a paused session": ("density", "{=memory of a paused session} KiB of memory"),
}


def figures(runs: Runs) -> str:
    """Return a table with one row, for the README."""
    cells = {
        title: fill(runs[part], text)
        for title, (part, text) in FIGURES.items()
        if is_published(runs, part)
    }
    if not cells:
        return "No run of a quiet machine is recorded."
    rows = (list(cells), ["---"] * len(cells), list(cells.values()))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


COMPARISON_TEXTS = {
    "hop": "A small call takes (p50): "
    + "; ".join(
        f"over {title} {_small(over, 'statehold')} ms, directly {_small(over, 'direct')} ms, through FastMCP's proxy "
        f"{_small(over, 'fastmcp')} ms"
        for over, title in (("stdio", "stdio"), ("http", "HTTP"))
    )
    + ".",
    "agent": SENTENCES["agent"],
    "start": "The first client has its tools {p50|route=statehold; first start} ms after its start, a client beside a "
    "running server after {p50|route=statehold --shared} ms, one with `@playwright/mcp` after {p50|route=peer} ms (p50).",
    "keeper": f"{SENTENCES['keeper']} {{outcome unknown+}} calls got `outcome_unknown`.",
}


def comparison(runs: Runs) -> str:
    """Return sentences that compare with peers in one run each."""
    lines = {
        part: fill(runs[part], text)
        for part, text in COMPARISON_TEXTS.items()
        if is_published(runs, part)
    }
    if "agent" in lines:
        tasks = [row for row in runs["agent"].rows if row["task"] != "all"]
        more = sum(number(row["x tokens"]) > 1 for row in tasks)
        lines["agent"] += f" {more} of the {len(tasks)} tasks take more tokens with Statehold."
    return _bullets(*lines.values())


WRITTEN: dict[Path, dict[str, Callable[[Runs], str]]] = {
    PAGE: {
        "results": results,
        "charts": pictures,
        "measurements": measurements,
        "missed targets": misses,
    },
    TABLES: {"tables": tables},
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
