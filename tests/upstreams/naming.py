"""A quick server whose tools have the names it is started with: `python naming.py NAME ...`. Each answers with its name."""

from __future__ import annotations

import sys

from quick import JSON, Quick, Refused, text, tool


class Naming(Quick):
    def call(self, name: str, arguments: JSON, params: JSON, request_id: object) -> JSON:
        if all(name != known["name"] for known in self.tools):
            raise Refused(-32602, f"Unknown tool: {name}")
        return text(name)


if __name__ == "__main__":
    server = Naming()
    server.tools = [tool(name) for name in sys.argv[1:]]
    server.run()
