"""A long reference page, as generators of documentation write them: some 200,000 tokens as a snapshot."""

from __future__ import annotations

import random
from html import escape
from typing import Final

SECTIONS: Final = 180
SOUGHT: Final = "tide_lookahead_hours"
"""A parameter that one function has, and its default."""
DEFAULT: Final = "17"
ADDED: Final = "4.3"
"""The version whose notes describe it."""
_SOUGHT_IN: Final = 107

_VERBS: Final = (
    "open",
    "close",
    "plan",
    "measure",
    "merge",
    "split",
    "route",
    "verify",
    "load",
    "store",
)
_NOUNS: Final = (
    "channel", "berth", "chart", "voyage", "tide_table", "buoy", "manifest", "crew_list", "beacon", "harbour",
    "lock", "pilot_order", "cargo_plan", "depth_map", "signal", "weather_report", "anchor_watch", "route_leg",
    "fuel_log", "port_call", "convoy", "radar_track", "log_book", "safety_drill", "engine_report", "ballast_plan",
    "mooring", "position_fix", "ship_index", "trim_table",
)  # fmt: skip
_PARAMETERS: Final = (
    "timeout",
    "retries",
    "units",
    "strict",
    "cache_size",
    "precision",
    "on_error",
    "locale",
    "limit",
)
_TYPES: Final = {
    "timeout": "float",
    "units": "str",
    "strict": "bool",
    "on_error": "callable",
    "locale": "str",
}
_PROSE: Final = (
    "Returns at once; the work goes on until the object is closed or the voyage that owns it has ended.",
    "The result is cached for each position and time, and thrown away when the chart is replaced by a newer one.",
    "Times are taken as local to the port, unless the value that is passed carries a time zone of its own.",
    "Raises HarbourError when the port does not answer, and ValueError for values outside of the stated range.",
    "Calls from several threads are safe, but only one of them at a time talks to the instrument itself.",
)  # fmt: skip

NAMES: Final = [f"{verb}_{noun}" for noun in _NOUNS for verb in _VERBS][:SECTIONS]
OWNER: Final = NAMES[_SOUGHT_IN]
"""The function that has the parameter."""


def body() -> str:
    """Return the content of the page: a table of contents, and a section for each function."""
    drawn = random.Random(8)
    contents = "".join(f'<li><a href="#{name}">{name}()</a></li>' for name in NAMES)
    sections = "".join(_section(number, name, drawn) for number, name in enumerate(NAMES))
    return (
        f'<div class="columns"><nav aria-label="Contents"><h2>Contents</h2><ul>{contents}</ul></nav>'
        f"<div><h1>Tidewater reference</h1><p>All functions of Tidewater 4, by what they work on.</p>{sections}</div></div>"
    )


def _section(number: int, name: str, drawn: random.Random) -> str:
    rows = [_parameter(one, drawn) for one in drawn.sample(_PARAMETERS, 5)]
    if number == _SOUGHT_IN:
        rows.insert(2, (SOUGHT, "int", DEFAULT, "How far ahead tides are computed."))
    table = "".join(
        f"<tr><td><code>{row[0]}</code></td><td>{row[1]}</td><td>{row[2]}</td><td>{row[3]}</td></tr>"
        for row in rows
    )
    version = ADDED if number == _SOUGHT_IN else f"{drawn.randrange(1, 4)}.{drawn.randrange(9)}"
    more = "".join(
        f'<li><a href="#{one}"><code>{one}()</code></a> {drawn.choice(_PROSE)}</li>'
        for one in drawn.sample(NAMES, 3)
    )
    call = f"{name}({', '.join(f'{row[0]}={row[2]}' for row in rows[:3])})"
    return (
        f'<section id="{name}"><h2>{name}() <a href="#{name}" aria-label="Link to {name}">#</a></h2>'
        f"<p>{' '.join(drawn.sample(_PROSE, 3))}</p>"
        f"<table><thead><tr><th>Parameter</th><th>Type</th><th>Default</th><th>Meaning</th></tr></thead>"
        f"<tbody>{table}</tbody></table><p>{drawn.choice(_PROSE)}</p>"
        f"<pre><code>from tidewater import {name}\n\nresult = {escape(call)}\nprint(result.summary())</code></pre>"
        f"<h3>See also</h3><ul>{more}</ul>"
        f'<p>Changed in <a href="/docs/notes/{version}">version {version}, {name}</a>.</p>'
        f'<p><button>Copy the example</button> <a href="/docs/edit?page={name}">Edit this page</a></p></section>'
    )


def _parameter(name: str, drawn: random.Random) -> tuple[str, str, str, str]:
    kind = _TYPES.get(name, "int")
    value = {"float": "2.5", "str": "None", "bool": "False", "callable": "None"}.get(kind)
    return name, kind, value or str(drawn.randrange(2, 90)), drawn.choice(_PROSE)


def notes(version: str) -> str:
    """Return the content of the release notes of a version."""
    drawn = random.Random(version)
    lines = "".join(f"<li>{drawn.choice(_PROSE)}</li>" for _ in range(40))
    by = "Ines Duarte" if version == ADDED else "the maintainers"
    return f"<h1>Notes of version {version}</h1><p>Prepared by {by}.</p><ul>{lines}</ul>"
