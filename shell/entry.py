"""The console script: commands that call tools start at once, all others by way of click."""

from __future__ import annotations

import sys

QUICK = ("call", "answer", "tasks", "tools", "complete")
"""The commands of call/."""


def main() -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:]
    if not {"-h", "--help"} & set(words):
        settings, rest = _split(words)
        if rest and rest[0] in QUICK:
            from .call.main import run

            return run(rest[0], settings + rest[1:])
    from .main import main as run_command

    return run_command(words)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the settings before the command, and the rest of a command line."""
    if not words or not words[0].startswith("-"):
        return [], words
    from .call.words import SETTINGS

    count = 0
    while count < len(words) and words[count].partition("=")[0] in SETTINGS:
        name, is_joined, _ = words[count].partition("=")
        count += 1 if is_joined or not SETTINGS[name][0] else 2
    return words[:count], words[count:]
