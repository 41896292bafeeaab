"""A shell as an MCP server: `python shell.py [--era modern|legacy|both] [--log FILE]`. Stdio only; see quick.py."""

from __future__ import annotations

import subprocess
import sys

from quick import JSON, Quick, option, text, tool


class Shell(Quick):
    """Runs commands one after the other, and numbers them."""

    def __init__(self, log: str | None = None, era: str = "both") -> None:
        super().__init__(log, era)
        self.tools = [tool("run", {"command": {"type": "string"}})]

    def tool_run(self, arguments: JSON, *_: object) -> JSON:
        """Return the output and the exit code of a command, and how many this process has run."""
        done = subprocess.run(
            ["sh", "-c", str(arguments["command"])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.count += 1
        answer = {"count": self.count, "output": done.stdout, "exit_code": done.returncode}
        return text(done.stdout, answer)


if __name__ == "__main__":
    given = sys.argv[1:]
    Shell(option(given, "--log"), option(given, "--era") or "both").run()
