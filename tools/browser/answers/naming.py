"""Locators for the elements of a snapshot, derived from the snapshot alone: a query to the page costs as much as a click."""

from __future__ import annotations

import json
import re
from typing import Final

from ..secrets.snapshot_line import SnapshotLine, parse_line

LONGEST: Final = 100
"""The longest name, in characters, that is used in a locator."""

_UNNAMED: Final = frozenset({"generic", "text", "iframe"})
"""The words of a snapshot for elements without a role to locate them by."""

_NAMED: Final = re.compile(r'- (\w+) ("(?:[^"\\]|\\.)*")')


def code_of(snapshot: str, ref: str) -> str | None:
    """Return Playwright's Python for the element of a ref, or None if its role and name are not unique."""
    found = _line_of(snapshot, ref)
    if found is None:
        return None
    start, line = found
    match = _NAMED.match(line.key.lstrip(" "))
    if match is None:
        return None
    role, quoted_name = match.groups()
    name = _unquote(quoted_name)
    if role in _UNNAMED or not name or len(name) > LONGEST or _is_framed(snapshot, start):
        return None
    names = [
        _unquote(other) for other in re.findall(rf"- '?{role} (\"(?:[^\"\\]|\\.)*\")", snapshot)
    ]
    if names.count(name) != 1:
        return None
    containing = sum(name.casefold() in other.casefold() for other in names)
    exact = ", exact=True" if containing > 1 else ""
    return f"get_by_role({json.dumps(role)}, name={json.dumps(name, ensure_ascii=False)}{exact})"


def role_of(snapshot: str, ref: str) -> str | None:
    """Return the role of the element of a ref, or None if the snapshot does not contain the ref."""
    found = _line_of(snapshot, ref)
    return None if found is None else found[1].role


def _line_of(snapshot: str, ref: str) -> tuple[int, SnapshotLine] | None:
    """Return the position and the parts of the line of a ref. Names and texts may look like a ref."""
    mark = f"[ref={ref}]"
    position = snapshot.find(mark)
    while position >= 0:
        start = snapshot.rfind("\n", 0, position) + 1
        end = snapshot.find("\n", position)
        line = parse_line(snapshot[start : end if end >= 0 else None])
        if line is not None and line.ref == ref:
            return start, line
        position = snapshot.find(mark, position + 1)
    return None


def _unquote(quoted_name: str) -> str:
    try:
        return str(json.loads(quoted_name))
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
    return next((index for index, letter in enumerate(line) if letter != " "), 0)


__all__ = ["code_of", "role_of"]
