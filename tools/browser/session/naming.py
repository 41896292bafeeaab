"""Locators for the elements of a snapshot, derived from the snapshot alone: a query to the page costs as much as a click."""

from __future__ import annotations

import json
import re
from typing import Final

LONGEST: Final = 100
"""The longest name, in characters, that is used in a locator."""

_UNNAMED: Final = frozenset({"generic", "text", "iframe"})
"""The words of a snapshot for elements without a role to locate them by."""

_NAMED: Final = re.compile(r'- (\w+) ("(?:[^"\\]|\\.)*")')


def code_of(snapshot: str, ref: str) -> str | None:
    """Return Playwright's Python for the element of a ref, or None if its role and name are not unique."""
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
    """Return the role of the element of a ref, or None if the snapshot does not contain the ref."""
    found = re.search(rf"^ *- '?(\w+)\b.*\[ref={re.escape(ref)}\]", snapshot, re.MULTILINE)
    return found[1] if found else None


def _text(written: str) -> str:
    try:
        return str(json.loads(written))
    except ValueError:
        return ""


def _is_framed(snapshot: str, start: int) -> bool:
    """Return whether the line that begins at `start` is inside a frame, where a locator of the page finds no element."""
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
