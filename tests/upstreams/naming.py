"""A quick server whose tools have the names it is started with: `python naming.py NAME ...`."""

from __future__ import annotations

import sys

from quick import Quick, tool

if __name__ == "__main__":
    server = Quick()
    server.tools = [tool(name) for name in sys.argv[1:]]
    server.run()
