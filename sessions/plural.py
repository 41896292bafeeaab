"""Counts in texts."""

from __future__ import annotations


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun; `several` is the noun's plural if that does not end in s."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"
