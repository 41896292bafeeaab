"""The pages with figures have those of benchmarks/runs, which have no trace of a machine."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.page.charts import Chart, charts, draw
from benchmarks.page.runs import FOLDER, outdated_parts, read_runs
from benchmarks.page.sentences import SENTENCES
from benchmarks.page.text import (
    FIRST,
    PAGE,
    WRITTEN,
    figures,
    measurements,
    misses,
    results,
    written,
)
from benchmarks.parts import PARTS

ROOT = FOLDER.parents[1]
RUNS = read_runs()
CHARTS = charts(RUNS)
REMEDY = "run: uv run --group bench python -m benchmarks plot"
LARGEST = 60 * 1024
SVG = "{http://www.w3.org/2000/svg}"
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="the group bench is not installed"
)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.parent.name + path.stem)
def test_page_has_the_figures_of_the_runs(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert written(path, page, RUNS) == page, REMEDY


def test_page_names_every_part() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for part in PARTS:
        assert f"`{part}`" in page


def test_the_figures_for_newcomers_are_of_one_day() -> None:
    days = {RUNS[part].day for part in FIRST}
    assert len(days) == 1
    assert None not in days


def test_page_without_a_place_for_the_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for its results"):
        written(PAGE, "# Benchmarks\n", RUNS)


def test_missed_target_without_a_reason_is_shown_as_not_explained(tmp_path: Path) -> None:
    run = json.loads((FOLDER / "open.json").read_text(encoding="utf-8"))
    run["targets"][0]["met"] = "NO"
    (tmp_path / "open.json").write_text(json.dumps(run))
    assert "| `open` |" not in misses(RUNS)
    [row] = misses(read_runs(tmp_path)).splitlines()[2:]
    assert row.startswith(f"| `open` | {run['targets'][0]['target']}: ")
    assert row.endswith("| not explained yet |")


def test_every_part_has_a_sentence() -> None:
    assert list(SENTENCES) == list(PARTS)


def test_no_run_is_older_than_the_version_by_more_than_a_release() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert outdated_parts(RUNS, version, releases) == []
    # Two releases later all runs with a version are named.
    later = outdated_parts(RUNS, "9.1", ["9.1", "9.0", version])
    assert "hop" in later
    assert outdated_parts(RUNS, "9.0", ["9.0", version]) == []


def test_a_run_of_a_busy_machine_is_marked_and_publishes_no_figure(tmp_path: Path) -> None:
    run = json.loads((FOLDER / "hop.json").read_text(encoding="utf-8"))
    for is_quiet in (True, False):
        run["about"]["quiet"] = is_quiet
        (tmp_path / "hop.json").write_text(json.dumps(run))
        runs = read_runs(tmp_path)
        assert (", not quiet |" in measurements(runs)) is not is_quiet
        assert ("- Over stdio a call takes" in results(runs)) is is_quiet
        assert ("a small call over stdio" in figures(runs)) is is_quiet
        assert [chart.name for chart in charts(runs)] == (["call-latency"] if is_quiet else [])


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_chart_has_the_figures_of_the_runs(chart: Chart) -> None:
    picture = chart.path.read_text(encoding="utf-8")
    assert len(picture.encode()) < LARGEST
    texts = [
        "".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")
    ]
    shown = sorted(texts)
    for label in sorted([*chart.labels(), *chart.groups]):
        assert label in shown, (label, REMEDY)
        shown.remove(label)
    assert f"(../pictures/{chart.path.name})" in PAGE.read_text(encoding="utf-8")


@pytest.mark.thorough
@needs_matplotlib
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_same_runs_give_the_same_chart(chart: Chart, tmp_path: Path) -> None:
    draw(chart, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == chart.path.read_bytes(), REMEDY


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_run_is_of_a_part_and_names_no_path_and_no_host(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert file.stem in PARTS
    assert file.stem in json.loads(text)
    assert not re.findall(
        r"/(?:tmp|root|home|Users|work|var|opt)\b|\blocalhost\b|\d+(?:\.\d+){3}", text
    )
