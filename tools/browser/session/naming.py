"""Naming an element of a snapshot as a test would, from the snapshot alone: to ask the page costs as much as the click."""

from __future__ import annotations

import json
import re
from typing import Final

LONGEST: Final = 100
"""The longest name, in characters, by which an element is found; a longer one is no good name."""

_UNNAMED: Final = frozenset({"generic", "text", "iframe"})
"""What a snapshot calls elements that have no role to be found by."""

_NAMED: Final = re.compile(r'- (\w+) ("(?:[^"\\]|\\.)*")')


def code_of(snapshot: str, ref: str) -> str | None:
    """Return Playwright's Python for the element of a ref, None when role and name do not tell it from all others."""
    shown = snapshot.find(f"[ref={ref}]")
    if shown < 0:
        return None
    start = snapshot.rfind("\n", 0, shown) + 1
    match = _NAMED.match(snapshot[start:shown].lstrip(" "))
    if match is None:
        return None
    role, written = match.groups()
    name = _text(written)
    if role in _UNNAMED or not name or len(name) > LONGEST or _is_framed(snapshot, start):
        return None
    same = [_text(other) for other in re.findall(rf"- '?{role} (\"(?:[^\"\\]|\\.)*\")", snapshot)]
    if same.count(name) != 1:
        return None
    alike = sum(name.casefold() in other.casefold() for other in same)
    exact = ", exact=True" if alike > 1 else ""
    return f"get_by_role({json.dumps(role)}, name={json.dumps(name, ensure_ascii=False)}{exact})"


def role_of(snapshot: str, ref: str) -> str | None:
    """Return the role of the element of a ref, None when the snapshot has it not."""
    found = re.search(rf"^ *- '?(\w+)\b.*\[ref={re.escape(ref)}\]", snapshot, re.MULTILINE)
    return found[1] if found else None


def _text(written: str) -> str:
    try:
        return str(json.loads(written))
    except ValueError:
        return ""


def _is_framed(snapshot: str, start: int) -> bool:
    """Whether the line that begins at `start` is below a frame, in which a locator of the page finds nothing."""
    depth = _depth(snapshot[start:])
    for line in reversed(snapshot[:start].splitlines()):
        if not depth:
            break
        if _depth(line) < depth:
            depth = _depth(line)
            if line.lstrip(" -'").startswith("iframe"):
                return True
    return False


def _depth(line: str) -> int:
    return next((at for at, letter in enumerate(line) if letter != " "), 0)


__all__ = ["code_of", "role_of"]
