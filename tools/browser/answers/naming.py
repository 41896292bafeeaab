"""Locators for the elements of a snapshot, derived from the snapshot alone: a query to the page costs as much as a click."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..secrets.snapshot_line import SnapshotLine, parse_line

if TYPE_CHECKING:
    from playwright.async_api import FrameLocator, Locator, Page

MAX_CHARACTERS: Final = 100
"""The longest name, in characters, that is used in a locator."""

_UNNAMED: Final = frozenset({"generic", "text", "iframe"})
"""The words of a snapshot for elements without a role to locate them by."""

_SCOPES: Final = frozenset(
    {
        *("alertdialog", "banner", "complementary", "contentinfo", "dialog", "form", "main"),
        *("navigation", "region", "row", "search"),
    }
)
"""The roles of landmarks, forms, rows and dialogs: an element is looked for in one of them if it is one of several."""

MAX_DEPTH: Final = 1000
"""The most blanks before a line that are counted."""

_PREFIX: Final = re.compile(r"(?:g\d+)?(?:t\d+)?(?=(?:f\d+)?e)")
"""Matches the part of a ref that tells restorations and tabs apart, which the page does not know."""

_ROLE_AND_NAME: Final = re.compile(r'(\w+)(?: ("(?:[^"\\]|\\.)*"))?')
_NAMED: Final = re.compile(r'- (\w+) ("(?:[^"\\]|\\.)*")')
_BOX: Final = re.compile(
    r"""^ *- '?(?P<named>(?:checkbox|radio|switch) "(?:[^"\\]|\\.)+")(?P<states>(?: \[[^\]]*\])*)""",
    re.MULTILINE,
)

NAME_REF: Final = "e0"
"""The beginning of a ref that stands for a role and a name. Playwright numbers elements from 1."""


def add_name_refs(snapshot: str) -> str:
    """Return a snapshot in which a checkbox, radio button or switch without a ref has one, if no other has its name.

    Playwright gives no ref to an element without a size, such as an input that a page hides to draw it anew by its label.
    The ref is made from the role and the name, so it is the same in every snapshot; find_by_role() tells its element.
    """

    def add(match: re.Match[str]) -> str:
        if "[ref=" in match["states"] or snapshot.count(match["named"]) > 1:
            return match[0]
        return f"{match[0]} [ref={NAME_REF}{zlib.crc32(match['named'].encode())}]"

    return _BOX.sub(add, snapshot)


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
    if role in _UNNAMED or not name or len(name) > MAX_CHARACTERS or _frame_of(snapshot, start):
        return None
    names = [
        _unquote(other) for other in re.findall(rf"- '?{role} (\"(?:[^\"\\]|\\.)*\")", snapshot)
    ]
    if names.count(name) != 1:
        return None
    containing = sum(name.casefold() in other.casefold() for other in names)
    exact = ", exact=True" if containing > 1 else ""
    return f"get_by_role({json.dumps(role)}, name={json.dumps(name, ensure_ascii=False)}{exact})"


class RoleAndName(NamedTuple):
    """The role and the exact name of an element, within another one or a frame if that is needed."""

    role: str
    name: str
    """"" for an element around another one that is the only one of its role."""
    scope: RoleAndName | None = None
    frame: str = ""
    """The ref of the frame around it, as the page knows it."""

    @property
    def code(self) -> str:
        """Playwright's Python for it, without its scope and its frame."""
        role, name = json.dumps(self.role), json.dumps(self.name, ensure_ascii=False)
        return (
            f"get_by_role({role}, name={name}, exact=True)" if self.name else f"get_by_role({role})"
        )

    def locator(self, page: Page) -> Locator:
        """Return Playwright's locator for it."""
        around = page.get_by_ref(self.frame).content_frame if self.frame else page
        if self.scope is not None:
            around = _within(around, self.scope)
        return _within(around, self)


def _within(around: Page | FrameLocator | Locator, element: RoleAndName) -> Locator:
    role: Any = element.role
    if not element.name:
        return around.get_by_role(role)
    return around.get_by_role(role, name=element.name, exact=True)


def find_by_role(snapshot: str, ref: str) -> RoleAndName | None:
    """Return the role and the name that only the element of a ref has in a snapshot, or None if there are none."""
    found = _line_of(snapshot, ref)
    if found is None:
        return None
    start, line = found
    role, name = _role_and_name(line.key)
    if role in _UNNAMED or not name or len(name) > MAX_CHARACTERS:
        return None
    text, frame_ref = snapshot, ""
    if (frame := _frame_of(snapshot, start)) is not None:
        text, frame_ref = _below(snapshot, frame[0]), frame[1].ref
        if (match := _PREFIX.match(frame_ref)) is not None:
            frame_ref = frame_ref[match.end() :]
    if _count(text, role, name) == 1:
        return RoleAndName(role, name, frame=frame_ref)
    for place, outer in _around(snapshot, start):
        if outer.role == "iframe":
            break
        outer_role, outer_name = _role_and_name(outer.key)
        if outer_role not in _SCOPES or len(outer_name) > MAX_CHARACTERS:
            continue
        if _count(text, outer_role, outer_name) == 1 == _count(_below(snapshot, place), role, name):
            return RoleAndName(role, name, RoleAndName(outer_role, outer_name), frame_ref)
    return None


def _frame_of(snapshot: str, start: int) -> tuple[int, SnapshotLine] | None:
    """Return the position and the line of the nearest frame around the line that begins at `start`, or None."""
    if snapshot.rfind("- iframe", 0, start) < 0:
        return None
    return next((each for each in _around(snapshot, start) if each[1].role == "iframe"), None)


def _role_and_name(key: str) -> tuple[str, str]:
    """Return the role and the name in the key of a line; "" for none."""
    key = key.lstrip(" ").removeprefix("- ")
    if key.startswith("'"):
        key = key[1:-1].replace("''", "'")
    match = _ROLE_AND_NAME.match(key)
    return ("", "") if match is None else (match[1], _unquote(match[2] or '""'))


def _count(snapshot: str, role: str, name: str) -> int:
    """Count the elements of a role and name; without a name, all of the role."""
    if not name:
        return snapshot.count(f"- {role}") + snapshot.count(f"- '{role}")
    quoted = json.dumps(name, ensure_ascii=False)
    in_quotes = quoted.replace("'", "''")
    return snapshot.count(f"- {role} {quoted}") + snapshot.count(f"- '{role} {in_quotes}")


def _around(snapshot: str, start: int) -> Iterator[tuple[int, SnapshotLine]]:
    """Yield the positions and the lines of the elements around the line that begins at `start`, the nearest first."""
    depth = _depth(snapshot[start : start + MAX_DEPTH])
    while depth and start:
        end = start - 1
        start = snapshot.rfind("\n", 0, end) + 1
        other = _depth(snapshot[start : min(end, start + MAX_DEPTH)])
        if other >= depth:
            continue
        depth = other
        if (line := parse_line(snapshot[start:end])) is not None:
            yield start, line


def _below(snapshot: str, start: int) -> str:
    """Return the lines of the elements in the one whose line begins at `start`."""
    depth = _depth(snapshot[start : start + MAX_DEPTH])
    first = end = snapshot.find("\n", start) + 1
    while end and _depth(snapshot[end : end + MAX_DEPTH]) > depth:
        end = snapshot.find("\n", end) + 1
    return snapshot[first : end or None] if first else ""


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


def _depth(line: str) -> int:
    return next((index for index, letter in enumerate(line) if letter != " "), 0)
