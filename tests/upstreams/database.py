"""SQLite as an MCP server: `python database.py [--era modern|legacy|both] [--log FILE]`. Stdio only; see quick.py."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

from quick import JSON, Quick, option, text, tool


class Database(Quick):
    """Answers queries on the databases that they name."""

    def __init__(self, log: str | None = None, era: str = "both") -> None:
        super().__init__(log, era)
        words = {"path": {"type": "string"}, "sql": {"type": "string"}}
        self.tools = [tool("query", words, readOnlyHint=True)]

    def tool_query(self, arguments: JSON, *_: object) -> JSON:
        """Return the rows of a query, and how many there are."""
        with closing(sqlite3.connect(str(arguments["path"]), timeout=20)) as database:
            database.row_factory = sqlite3.Row
            rows = [dict(row) for row in database.execute(str(arguments["sql"]))]
        return text(f"{len(rows)} rows", {"count": len(rows), "rows": rows})


if __name__ == "__main__":
    given = sys.argv[1:]
    Database(option(given, "--log"), option(given, "--era") or "both").run()
