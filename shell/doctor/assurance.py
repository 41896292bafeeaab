"""`statehold doctor --assurance`: the MUST rows of a level of CoSAI's MCP Security, section 3.3, with their evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from ...server.config.model import Config
from ...server.exit_codes import FAILURE, OK
from ...sessions.one_line import one_line
from ...tools.browser.process.executables import Machine
from ..output import say, say_json, table

Level: TypeAlias = Literal["L1", "L2", "L3"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that a control found. With a `remedy` it is a gap, and the remedy is the line that mends it."""

    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """The resolved configuration and the machine that controls look at."""

    config: Config
    machine: Machine = field(default_factory=Machine)


Control: TypeAlias = Callable[[Installation], Iterator[Evidence]]
"""Yields the evidence of one MUST row. It starts no service."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The evidence of one control. It is met when none of it is a gap."""

    name: str
    evidence: tuple[Evidence, ...]

    @property
    def gaps(self) -> list[Evidence]:
        return [each for each in self.evidence if each.remedy]

    @property
    def status(self) -> Literal["met", "missing"]:
        return "missing" if self.gaps else "met"


def check(is_met: object, found: str, gap: str, remedy: str) -> Evidence:
    """Return the evidence of a condition: `found` if it is met, else `gap` with its remedy."""
    return Evidence(found) if is_met else Evidence(gap, remedy)


def assess(site: Installation, controls: Mapping[str, Control]) -> list[Assessment]:
    """Look at each control, by its name. One that fails is not met."""
    assessments: list[Assessment] = []
    for name, control in controls.items():
        try:
            evidence = tuple(control(site))
        except Exception as error:
            problem = f"could not be checked: {type(error).__name__}: {error}"
            evidence = (Evidence(problem, "report this"),)
        assessments.append(Assessment(name, evidence))
    return assessments


def report(level: Level, assessments: Sequence[Assessment], *, is_json: bool) -> int:
    """Print the assessments of a level; the exit code is 1 when a control is not met."""
    missing = [each for each in assessments if each.gaps]
    if is_json:
        controls = [{**asdict(each), "status": each.status} for each in assessments]
        say_json({"ok": not missing, "level": level, "controls": controls})
        return FAILURE if missing else OK
    rows = [
        (each.status, each.name, one_line("; ".join(one.found for one in each.evidence)))
        for each in assessments
    ]
    say(table(("", "CONTROL", "FOUND"), rows))
    if missing:
        say("\nwhat to do:")
    for each in missing:
        for gap in each.gaps:
            say(f"  {one_line(f'{each.name}: {gap.remedy}')}")
    count = len(assessments)
    say(f"\n{count - len(missing)} of {count} controls of {level} are met")
    return FAILURE if missing else OK
