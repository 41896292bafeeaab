"""The charts of docs/reference/benchmarks.md: horizontal bars on axes that begin at zero, as SVG files."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..plan import MODE, ROOT
from ..report import format_cell
from .runs import Run, Runs, is_published, read_runs

FOLDER = ROOT / "docs" / "pictures"
ERAS = {"legacy": "2025-11-25", "modern": MODE["modern"]}
TEXT = "#767d86"
"""A grey with about the same contrast on white and on the dark pages of GitHub; so have the bars."""
COLORS = {
    "direct": "#8a929b",
    "Statehold": "#2f7de1",
    "FastMCP proxy": "#c8720a",
    "mcp-proxy": "#a05fd6",
    "@playwright/mcp": "#c8720a",
    "Playwright alone": "#8a929b",
}
ROUTES = {
    "direct": "direct",
    "statehold": "Statehold",
    "fastmcp": "FastMCP proxy",
    "mcp-proxy": "mcp-proxy",
}
WIDTH, BAR, GAP = 8.3, 0.18, 0.6
"""Inches of a chart and of a bar, and the space between groups in bars."""
STYLE = {
    "axes.edgecolor": TEXT,
    "axes.labelcolor": TEXT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.xmargin": 0.2,
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 8.5,
    "legend.frameon": False,
    "legend.labelcolor": TEXT,
    "svg.fonttype": "none",
    "svg.hashsalt": "statehold",
    "text.color": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "ytick.major.size": 0,
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One axis. `series` has the values of each series in the order of the groups; None is a missing bar."""

    axis: str
    series: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels side by side that share their groups, with the text above them and the one for who does not see them."""

    name: str
    caption: str
    alternative: str
    groups: list[str]
    panels: list[Panel]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.svg"

    def labels(self) -> list[str]:
        """Return the texts of the figures that it shows."""
        values = [bar for panel in self.panels for bars in panel.series.values() for bar in bars]
        return [format_cell(value) for value in values if value is not None]


def charts(runs: Runs) -> list[Chart]:
    """Return the charts whose figures are published."""
    latency = [_latency(runs["hop"])] if is_published(runs, "hop") else []
    tasks = [_tasks(runs["agent"])] if is_published(runs, "agent") else []
    survival = _survival(runs)
    return [*latency, *tasks, *([survival] if survival.groups else [])]


def _latency(hop: Run) -> Chart:
    groups = [(over, era) for over in ("stdio", "http") for era in ERAS]

    def panel(size: str) -> Panel:
        def p50(route: str, over: str, era: str) -> float | None:
            cells = {"over": over, "era": era, "result": size, "at once": 1, "route": route}
            found = [row["p50"] for row in hop.rows if cells.items() <= row.items()]
            return _number(found[0]) if found else None

        series = {
            title: [p50(route, over, era) for over, era in groups]
            for route, title in ROUTES.items()
        }
        return Panel(f"{size} result: ms of a call, median", series)

    names = [f"{over}, {ERAS[era]}" for over, era in groups]
    return Chart(
        "call-latency",
        'One call at a time of the SDK\'s client, in both protocol versions (`hop`); "direct" over HTTP is the server of '
        "the SDK.",
        "Bars: milliseconds of a call directly, through Statehold, the FastMCP proxy and mcp-proxy",
        names,
        [panel("small"), panel("300 KiB")],
    )


def _tasks(agent: Run) -> Chart:
    rows = [row for row in agent.rows if row["task"] != "all"]

    def panel(axis: str, column: str) -> Panel:
        series = {"Statehold": column, "@playwright/mcp": f"peer {column}"}
        return Panel(
            axis, {name: [_number(row[cell]) for row in rows] for name, cell in series.items()}
        )

    names = [str(row["task"]) for row in rows]
    panels = [panel("tokens", "tokens"), panel("calls", "calls"), panel("seconds", "seconds")]
    return Chart(
        "browser-tasks",
        "Ten tasks on local copies of real kinds of sites, done by a scripted agent with both servers at their defaults "
        "(`agent`):",
        "Bars: tokens, calls and seconds of ten browser tasks with Statehold and with @playwright/mcp",
        names,
        panels,
    )


def _survival(runs: Runs) -> Chart:
    ours: dict[str, float] = {}
    alone: dict[str, float] = {}
    if is_published(runs, "restart"):
        ours["server started again after kill -9, 10,000 sessions"] = runs["restart"].number(
            "one session", stored=10_000, left_by="kill -9"
        )
    if "keeper" in runs and runs["keeper"].is_quiet:
        for what, upstream in (
            ("a call over stdio, its process kept", "stdio, 2026-07-28"),
            ("a call in a browser, its page kept", "browser, a counting page"),
        ):
            first_call = f"keeper: first call, p50 ({upstream})"
            ours[f"then: {what}"] = runs["keeper"].measured(first_call)
    if is_published(runs, "keep"):
        for name, what, tabs in (
            ("then: a call in a browser of 5 tabs, restored", "server started again", 5),
            ("browser killed: its next call", "browser killed", 1),
        ):
            ours[name] = runs["keep"].number("p50", what=what, tabs=tabs) / 1000
    for row in runs["failover"].rows if is_published(runs, "failover") else []:
        what, seconds = str(row["what"]), _number(row["longest gap, s"])
        assert seconds is not None
        if "Playwright alone" in what:
            alone[what] = seconds
        else:
            ours[f"node: {what}"] = seconds
    names = [*ours, *alone]
    series = {"Statehold": [ours.get(name) for name in names]}
    if alone:
        series["Playwright alone"] = [alone.get(name) for name in names]
    return Chart(
        "survival",
        "Seconds until a session answers again: the better of two starts (`restart`), medians (`keep`, and `keeper` from "
        "the moment when the server serves), and the longest of several (`failover`). Another machine takes over when the "
        "lease of the lost one has ended.",
        "Bars: seconds until the next answer after kill -9, restarts and failovers",
        names,
        [Panel("seconds until the next answer", series)],
    )


def _number(cell: object) -> float | None:
    assert cell is None or isinstance(cell, float | int)
    return cell


def draw_all(runs: Runs | None = None) -> Iterable[Path]:
    """Draw the charts of the runs, and yield the path of each."""
    for chart in charts(runs or read_runs()):
        draw(chart, chart.path)
        yield chart.path


def draw(chart: Chart, path: Path) -> None:
    """Draw a chart as SVG. The same chart gives the same bytes.

    Raises:
        ModuleNotFoundError: matplotlib is not installed: `uv run --group bench`.
    """
    # Of the group `bench`, so it is imported where it is used, and without its types.
    matplotlib: Any = importlib.import_module("matplotlib")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    with matplotlib.rc_context(STYLE):
        bars = sum(_bars_of(chart, group) + GAP for group in range(len(chart.groups)))
        figure, axes = pyplot.subplots(
            1, len(chart.panels), sharey=True, squeeze=False, figsize=(WIDTH, bars * BAR + 0.9)
        )
        for axis, panel in zip(axes[0], chart.panels, strict=True):
            _draw_panel(axis, chart, panel)
        titles = list(chart.panels[0].series)
        if len(titles) > 1:
            handles = axes[0][0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside upper right", ncols=len(titles))
        figure.savefig(
            path, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
        pyplot.close(figure)


def _bars_of(chart: Chart, group: int) -> int:
    """Return the number of bars in a group, of its fullest panel."""
    return max(
        sum(bars[group] is not None for bars in panel.series.values()) for panel in chart.panels
    )


def _draw_panel(axis: Any, chart: Chart, panel: Panel) -> None:
    top, places = 0.0, dict[str, list[float]]()
    middles: list[float] = []
    for group in range(len(chart.groups)):
        named = [title for title, bars in panel.series.items() if bars[group] is not None]
        for number, title in enumerate(named):
            places.setdefault(title, []).append(top + number)
        count = _bars_of(chart, group)
        middles.append(top + (count - 1) / 2)
        top += count + GAP
    for title, bars in panel.series.items():
        values = [value for value in bars if value is not None]
        drawn = axis.barh(places.get(title, []), values, 0.9, label=title, color=COLORS[title])
        axis.bar_label(drawn, [format_cell(value) for value in values], padding=2, fontsize=7.5)
    axis.set_yticks(middles, chart.groups)
    axis.set_ylim(top - GAP - 0.3, -0.7)
    axis.set_xlim(left=0)
    axis.locator_params(axis="x", nbins=4, integer=True)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlabel(panel.axis)
