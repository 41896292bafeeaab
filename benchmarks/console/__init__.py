"""console: pages of long lists and timelines, the live picture from paint to paint, and the cost of viewers."""

from __future__ import annotations

from ..browser.bare import shell
from ..plan import Plan
from ..report import Table
from . import cost, latency, lists


async def measure(plan: Plan) -> Table:
    table = Table("console: pages of lists and timelines over HTTP, in ms")
    table.rows, table.targets = await lists.measure(plan)
    if shell() is None:
        table.notes.append("left out: chromium-headless-shell is not installed")
        return table
    pictures = Table("console: the picture of a session from paint to paint, in ms")
    pictures.rows, more_targets, pictures.notes = await latency.measure(plan)
    uses = Table("console: cores of the server and of the browser that it drives, by viewers")
    calls = Table("console: calls of an agent over HTTP, and the same while one viewer watches")
    uses.rows, calls.rows, cost_targets = await cost.measure(plan)
    table.targets += [*more_targets, *cost_targets]
    table.details, pictures.details, uses.details = pictures, uses, calls
    return table
