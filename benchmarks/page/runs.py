"""The published runs: a JSON file per part in benchmarks/runs, as `python -m benchmarks PART --json FILE` writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..parts import ONLY_BY_NAME, PARTS
from ..report import Cell, Row

NO_VERSION = "not recorded"
FOLDER = Path(__file__).resolve().parents[1] / "runs"


@dataclass(frozen=True, slots=True)
class Run:
    """The run of one part. `missed` is added to the file by hand: the reason why it missed targets."""

    part: str
    title: str
    rows: list[Row]
    targets: list[dict[str, str]]
    about: dict[str, Any]
    missed: str

    @property
    def day(self) -> str | None:
        return self.about.get("taken_at", "").partition("T")[0] or None

    @property
    def load(self) -> float | None:
        """The mean number of processes that wanted a core in the minute before the run."""
        return self.about.get("load_before", [None])[0]

    @property
    def version(self) -> str:
        """The version of Statehold that was measured."""
        return self.about.get("packages", {}).get("statehold", NO_VERSION)

    @property
    def is_quiet(self) -> bool:
        """Whether other programs were idle. Runs that did not look have the load: of two cores, one is to be free."""
        return self.about.get("quiet", (self.load or 0.0) < 1)

    @property
    def missed_targets(self) -> list[dict[str, str]]:
        return [target for target in self.targets if target["met"] != "yes"]

    def rows_with(self, **cells: Cell) -> list[Row]:
        """Return the rows that have these cells; in a name, `_` stands for a space.

        Raises:
            LookupError: None has.
        """
        wanted = {name.replace("_", " "): value for name, value in cells.items()}
        found = [row for row in self.rows if wanted.items() <= row.items()]
        if not found:
            raise LookupError(f"the run of {self.part} has no row with {wanted}")
        return found

    def number(self, column: str, **cells: Cell) -> float:
        """Return a number of the only row with these cells."""
        [row] = self.rows_with(**cells)
        value = row[column]
        assert isinstance(value, float | int)
        return value

    def measured(self, target: str) -> float:
        """Return the value that was compared with a target."""
        [found] = [row for row in self.targets if row["target"] == target]
        return float(found["measured"].split()[0].replace(",", ""))


Runs = dict[str, Run]


def is_published(runs: Runs, part: str) -> bool:
    """Whether a part has figures for the top of a page: of a quiet machine, or of a test, which wants load."""
    return part in runs and (runs[part].is_quiet or part in ONLY_BY_NAME)


def read_runs(folder: Path = FOLDER) -> Runs:
    """Return the published runs by part. A part without a file has none."""
    files = {part: folder / f"{part}.json" for part in PARTS}
    return {part: _read(part, file) for part, file in files.items() if file.exists()}


def _read(part: str, file: Path) -> Run:
    run = json.loads(file.read_text(encoding="utf-8"))
    table = run[part]
    return Run(
        part, table["title"], table["rows"], run["targets"], run["about"], run.get("missed", "")
    )


def outdated_parts(runs: Runs, version: str, releases: Sequence[str]) -> list[str]:
    """Return the parts whose runs are older than this version by more than a release. `releases`: the newest first.

    A run of before versions were recorded is not judged.
    """
    before = [release for release in releases if release != version][:1]
    return [part for part, run in runs.items() if run.version not in (NO_VERSION, version, *before)]
