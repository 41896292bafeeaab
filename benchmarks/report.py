"""The result of a run: tables for a reader, the same rows as JSON, and the comparison with the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Cell: TypeAlias = str | float | int | None
Row: TypeAlias = dict[str, Cell]


@dataclass(slots=True)
class Target:
    """One target number. `ceiling`: the value must not be more, else not less.

    `between` is the 95 % confidence interval of the value; the target is missed only when all of the interval misses it.
    `evidence` is shown where it is missed.
    """

    name: str
    value: float
    bound: float
    unit: str
    ceiling: bool = True
    between: tuple[float, float] | None = None
    evidence: str = ""

    @property
    def met(self) -> bool:
        low, high = self.between or (self.value, self.value)
        return low <= self.bound if self.ceiling else high >= self.bound

    def row(self) -> Row:
        sign = "at most" if self.ceiling else "at least"
        spread = (
            "" if self.between is None else " ({} to {})".format(*map(format_cell, self.between))
        )
        return {
            "target": self.name,
            "measured": f"{format_cell(self.value)} {self.unit}{spread}",
            "bound": f"{sign} {self.bound:,g} {self.unit}",
            "met": "yes" if self.met else "NO",
        }


@dataclass(slots=True)
class Table:
    """The rows of one part. All rows have the columns of the first. `details` are shown below it."""

    title: str
    rows: list[Row] = field(default_factory=list[Row])
    notes: list[str] = field(default_factory=list[str])
    targets: list[Target] = field(default_factory=list[Target])
    details: Table | None = None

    def text(self) -> str:
        lines = ["", self.title, *_align(self.rows), *(f"  {note}" for note in self.notes)]
        return "\n".join(lines) + ("" if self.details is None else f"\n{self.details.text()}")

    def json(self) -> dict[str, Any]:
        found = {"title": self.title, "rows": self.rows, "notes": self.notes}
        return found if self.details is None else {**found, "details": self.details.json()}


def against_targets(tables: Sequence[Table]) -> Table:
    return Table("Targets", [target.row() for table in tables for target in table.targets])


def _align(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["  (nothing was measured)"]
    names = list(rows[0])
    cells = [names, *([format_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    numeric = [all(not isinstance(row.get(name), str) for row in rows) for name in names]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    ]


def format_cell(value: Cell) -> str:
    """Return a value as tables show it: two decimals below 100, else none, and thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value
