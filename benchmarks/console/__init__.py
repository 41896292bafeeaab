"""console: pages of long lists and timelines, the live picture from paint to paint, and the cost of viewers."""

from __future__ import annotations

from ..plan import Plan
from ..report import Table
from . import lists


async def measure(plan: Plan) -> Table:
    table = Table("console: pages of lists and timelines over HTTP, in ms")
    table.rows, table.targets = await lists.measure(plan)
    return table
