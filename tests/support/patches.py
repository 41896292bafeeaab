"""A snapshot after a difference that a result showed in its place."""

from __future__ import annotations


def patched(before: str, difference: str) -> str:
    """Return the snapshot that a difference leads to from the one before; each part applies where its old lines are."""
    lines, start = before.splitlines(), 0
    for part in difference.split("\n@@\n"):
        marked = [line for line in part.splitlines() if line != "(nothing changed)"]
        old = [line[1:] for line in marked if line[0] in " -"]
        new = [line[1:] for line in marked if line[0] in " +"]
        places = range(start, len(lines) - len(old) + 1)
        at = next(n for n in places if lines[n : n + len(old)] == old)
        lines[at : at + len(old)] = new
        # The last neighbouring line may be the first of the next part.
        start = at + max(0, len(new) - 1)
    return "\n".join(lines)


__all__ = ["patched"]
