"""The quick server with a tool whose progress a test controls: `steps` sends one note for each line written to a FIFO.

Stdio only: `python stepping.py [--era modern|legacy|both] [--log FILE]`.
"""

from __future__ import annotations

import sys
import threading

from quick import JSON, TYPE_CHECKING, Quick, option, text, tool

if TYPE_CHECKING:
    from typing import Any


class Stepping(Quick):
    def __init__(self, log: str | None, era: str) -> None:
        super().__init__(log, era)
        self.tools.append(tool("steps", {"fifo": {"type": "string"}}))

    def handle(self, message: JSON) -> None:
        params: JSON = message.get("params") or {}
        if params.get("name") == "steps":
            threading.Thread(target=self.answer, args=(message, params), daemon=True).start()
        else:
            super().handle(message)

    def tool_steps(self, arguments: JSON, params: JSON, _: Any) -> JSON:
        meta: JSON = params.get("_meta") or {}
        token = meta.get("progressToken")
        count = 0
        with open(arguments["fifo"]) as lines:
            for count, _line in enumerate(lines, 1):
                progress: JSON = {"progressToken": token, "progress": count}
                self.write(
                    {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                )
        return text(str(count))


if __name__ == "__main__":
    given = sys.argv[1:]
    Stepping(option(given, "--log"), option(given, "--era") or "both").run()
