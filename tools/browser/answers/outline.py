"""The outline of a snapshot that is larger than its budget: its structure, its interactive elements, and their refs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(
    r"""(?:- )?(?P<quote>')?(?P<role>[\w-]+)(?: "(?P<name>(?:[^"\\]|\\.)*)")?(?P<states>(?: \[[^\]]*\])*)(?(quote)')"""
    r"(?::(?: (?P<value>.*))?)?"
)
_STATES: Final = frozenset({"checked", "disabled", "expanded", "invalid", "pressed", "selected"})
"""The marks of a line that tell a state of the element. The others are its ref, its level and where the pointer is."""


def line_text(line: str) -> str:
    """Return a line of a snapshot without its ref, its place and its quotes: `textbox Email: ada`, `checkbox Gift, checked`.

    A line of another form comes back without the blanks around it and the sign before it.
    """
    line = line.strip()
    match = _LINE.fullmatch(line)
    if match is None:
        return line.removeprefix("- ")
    name, value = match["name"] or "", match["value"] or ""
    if match["quote"]:
        name = name.replace("''", "'")
    states = [state for state in re.findall(r"\[([^\]]*)\]", match["states"]) if _is_state(state)]
    head = " ".join(filter(None, (match["role"], _unquote(f'"{name}"'))))
    head = ", ".join([head, *states])
    return f"{head}: {_unquote(value)}" if value else head


def _is_state(mark: str) -> bool:
    return mark.partition("=")[0] in _STATES


def _unquote(text: str) -> str:
    """Return a text of YAML without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


NAME: Final = 80
"""The most characters of a name and of a text in an outline."""
LINE: Final = 200
"""The most characters of a line around the element that was acted on."""
TEXT: Final = 2000
"""The most characters of a line among the texts that fill an outline."""
FIRST: Final = 25
"""The number of interactive elements of each landmark that come before the rest of any landmark."""
TEXT_LINES: Final = 6
"""The number of lines after an element without a name that are searched for its text."""

_LANDMARKS: Final = frozenset(
    {"banner", "navigation", "main", "complementary", "contentinfo", "search", "alert", "status"}
)
"""The roles that are always kept. Alerts and status lines are here because they report the result of an action."""
_NAMED_LANDMARKS: Final = frozenset({"form", "region"})
_DIALOGS: Final = frozenset({"dialog", "alertdialog"})
_CONTAINERS: Final = frozenset(
    {
        *("article", "figure", "grid", "group", "list", "listbox", "listitem", "menu", "menubar"),
        *("radiogroup", "row", "table", "tablist", "tabpanel", "toolbar", "tree"),
    }
)
"""The roles that are kept above an interactive element if they have a name, such as the row of a button."""
_INTERACTIVE: Final = frozenset(
    {
        *("button", "checkbox", "combobox", "link", "menuitem", "menuitemcheckbox", "option"),
        *("menuitemradio", "radio", "searchbox", "slider", "spinbutton", "switch", "tab"),
        *("textbox", "treeitem"),
    }
)
_FIELDS: Final = frozenset({"combobox", "searchbox", "spinbutton", "textbox"})

_ROLE: Final = re.compile(r"- '?(\w+)")
_PARTS: Final = re.compile(r"- ('?)(\w+)(?: \"((?:[^\"\\]|\\.)*)\")?((?: \[[^\]]*\])*)'?:? ?(.*)")
_POINTER: Final = "[cursor=pointer]"
_REF: Final = "[ref="

_REST: Final = (
    "# An outline. Left out: {elements} elements, {interactive} of them interactive, and texts."
    " browser_find searches them for a text; browser_snapshot shows those below a ref (target), or writes all to a"
    " file (filename)."
)
_REST_LENGTH: Final = len(_REST) + 10


@dataclass(slots=True, eq=False)
class _Element:
    """A line that an outline may keep for its role."""

    number: int
    indent: int
    level: int
    """The number of candidates above it: the outline indents it by no more."""
    role: str
    parent: _Element | None
    landmark: int | None
    """The number of the landmark or dialog that it is, or is in."""
    in_main: bool


def outline(snapshot: str, limit: int, ref: str | None = None, *, texts: bool = False) -> str:
    """Return at most `limit` characters that represent a snapshot; `ref` is the element that was acted on.

    First come dialogs and the lines around `ref`, then landmarks and headings, then interactive elements in document order.
    With `texts`, all other lines fill what is left, those of the main content first. The last line tells how many elements
    are missing and how to get them. Takes time in proportion to the snapshot's length.
    """
    draft = _Draft(snapshot.split("\n"), limit - _REST_LENGTH)
    for dialog in draft.dialogs:
        draft.add_lines(draft.subtree(dialog.number), limit // 2)
    if ref is not None:
        draft.add_lines(draft.region(ref, limit // 4), limit)
    draft.add(draft.landmarks, limit)
    headings = sorted(draft.headings, key=draft.heading_level)
    draft.add(headings, draft.size + (limit - draft.size) // 2)
    draft.add(_by_importance(draft.interactive), limit)
    draft.add(headings, limit)
    if texts:
        for landmark in draft.landmarks:
            if landmark.role == "main":
                draft.add_lines(draft.subtree(landmark.number), limit, longest=TEXT)
        draft.add_lines(range(draft.length), limit, longest=TEXT)
    return draft.render()


def _by_importance(elements: Iterable[_Element]) -> list[_Element]:
    """Return the first elements of each landmark, then the rest of the main content, then all others."""
    counts: Counter[int | None] = Counter()
    groups: tuple[list[_Element], list[_Element], list[_Element]] = ([], [], [])
    for element in elements:
        counts[element.landmark] += 1
        is_first = counts[element.landmark] <= FIRST
        groups[0 if is_first else 1 if element.in_main else 2].append(element)
    return [*groups[0], *groups[1], *groups[2]]


class _Draft:
    """The lines of a snapshot, and those that the outline keeps so far."""

    def __init__(self, lines: list[str], limit: int) -> None:
        self.size = 0
        """The characters of the kept lines, at most."""
        self.dialogs: list[_Element] = []
        self.landmarks: list[_Element] = []
        self.headings: list[_Element] = []
        self.interactive: list[_Element] = []
        self._lines = lines
        self._indents = [len(line) - len(line.lstrip(" ")) for line in lines]
        self._limit = limit
        self._kept: dict[int, tuple[str, str]] = {}
        """The head and the text of each kept line, by number, the most important first."""
        self._read()

    def _read(self) -> None:
        stack: list[_Element] = []
        for number, (line, indent) in enumerate(zip(self._lines, self._indents, strict=True)):
            while stack and stack[-1].indent >= indent:
                stack.pop()
            match = _ROLE.match(line, indent)
            if match is None:
                continue
            role = match[1]
            group = self._group(role, line)
            if group is None:
                continue
            parent = stack[-1] if stack else None
            landmark = None if parent is None else parent.landmark
            if group is self.landmarks or group is self.dialogs:
                landmark = number
            in_main = role == "main" or (parent is not None and parent.in_main)
            element = _Element(number, indent, len(stack), role, parent, landmark, in_main)
            group.append(element)
            stack.append(element)

    def _group(self, role: str, line: str) -> list[_Element] | None:
        """Return the list that an element belongs to, [] for a container, or None if an outline has no use for it."""
        if role in _INTERACTIVE:
            return self.interactive if _REF in line else None
        if role == "heading":
            return self.headings
        if role in _LANDMARKS:
            return self.landmarks
        if role in _DIALOGS:
            return self.dialogs
        if role in _NAMED_LANDMARKS and ' "' in line:
            return self.landmarks
        if _POINTER in line:
            return self.interactive
        if role == "iframe" or (role in _CONTAINERS and ' "' in line):
            return []
        return None

    def heading_level(self, heading: _Element) -> str:
        return self._lines[heading.number].partition("[level=")[2][:1]

    def subtree(self, start: int) -> range:
        """Return the numbers of a line and of those below it."""
        indent, end = self._indents[start], start + 1
        while end < len(self._lines) and self._indents[end] > indent:
            end += 1
        return range(start, end)

    def region(self, ref: str, most: int) -> range:
        """Return the largest element around a ref with at most `most` characters, with lines before and after it."""
        mark = f"{_REF}{ref}]"
        start = next((n for n, line in enumerate(self._lines) if mark in line), None)
        if start is None:
            return range(0)
        region = self.subtree(start)
        indent = self._indents[start]
        for number in range(start - 1, -1, -1):
            if self._indents[number] < indent:
                indent = self._indents[number]
                parent = self.subtree(number)
                if self._length(parent) > most:
                    break
                region = parent
        # Where the parent is too large, its lines before and after the region share the rest.
        return self._grow(region, most, indent)

    def _grow(self, region: range, most: int, indent: int) -> range:
        start, end, room = region.start, region.stop, most - self._length(region)
        after = room // 2
        while end < len(self._lines) and self._indents[end] > indent:
            after -= min(len(self._lines[end]), LINE) + 1
            if after < 0:
                break
            end += 1
        before = room - self._length(range(region.stop, end))
        while start and self._indents[start - 1] > indent:
            before -= min(len(self._lines[start - 1]), LINE) + 1
            if before < 0:
                break
            start -= 1
        return range(start, end)

    def _length(self, numbers: range) -> int:
        return sum(min(len(self._lines[number]), LINE) + 1 for number in numbers)

    @property
    def length(self) -> int:
        """The number of lines of the snapshot."""
        return len(self._lines)

    def add_lines(self, numbers: range, most: int, *, longest: int = LINE) -> None:
        """Keep lines as they are, as long as the outline has at most `most` characters."""
        for number in numbers:
            line = self._lines[number]
            if len(line) > longest:
                line = f"{line[:longest]}..."
            if not self._add(number, line.lstrip(" "), "", len(line), most):
                return

    def add(self, elements: Iterable[_Element], most: int) -> None:
        """Keep elements, each with its closest container, as long as the outline has at most `most` characters."""
        for element in elements:
            for needed in (_container(element), element):
                if needed is None:
                    continue
                head, text = self._shorten(needed)
                length = 2 * needed.level + len(head) + len(text) + 2
                if not self._add(needed.number, head, text, length, most):
                    return

    def _add(self, number: int, head: str, text: str, length: int, most: int) -> bool:
        if number in self._kept:
            return True
        if self.size + length + 1 > min(most, self._limit):
            return False
        self.size += length + 1
        self._kept[number] = head, text
        return True

    def _shorten(self, element: _Element) -> tuple[str, str]:
        """Return the head of an element's line with a short name, and its text."""
        line = self._lines[element.number].lstrip(" ")
        match = _PARTS.match(line)
        if match is None:
            return line[:NAME], ""
        quote, role, name, marks, text = match.groups()
        if role in _INTERACTIVE:
            # The role says it already.
            marks = marks.replace(f" {_POINTER}", "")
        if not text and (not name or role in _FIELDS) and element.role not in _LANDMARKS:
            text = self._text_below(element)
        name = f' "{_cut(name)}"' if name else ""
        return f"- {quote}{role}{name}{marks}{quote}", _cut(text)

    def _text_below(self, element: _Element) -> str:
        """Return the first text or name below an element; of a field, its value or its placeholder."""
        placeholder = ""
        start = element.number + 1
        for number in range(start, min(start + TEXT_LINES, len(self._lines))):
            if self._indents[number] <= element.indent:
                break
            line = self._lines[number].lstrip(" ")
            if line.startswith("- text: "):
                return line[8:]
            if line.startswith("- /placeholder: "):
                placeholder = line[16:]
            match = _PARTS.match(line)
            if match is not None and element.role not in _FIELDS and (match[3] or match[5]):
                return match[3] or match[5]
        return placeholder

    def render(self) -> str:
        """Return the kept lines, each indented below the kept ones it is in, and the line about the rest."""
        lines: dict[int, str] = {}
        above: list[int] = []
        for number, indent in enumerate(self._indents):
            while above and self._indents[above[-1]] >= indent:
                above.pop()
            if number in self._kept:
                if above:
                    parent = above[-1]
                    lines[parent] = f"{'  ' * (len(above) - 1)}{self._head(parent)}:"
                head, text = self._kept[number]
                lines[number] = f"{'  ' * len(above)}{head}{f': {text}' if text else ''}"
                above.append(number)
        self._trim(lines)
        interactive = sum(element.number not in lines for element in self.interactive)
        elements = sum(_REF in line for line in self._lines)
        elements -= sum(_REF in self._lines[number] for number in lines)
        return "\n".join(
            [*lines.values(), _REST.format(elements=elements, interactive=interactive)]
        )

    def _head(self, number: int) -> str:
        return self._kept[number][0].removesuffix(":")

    def _trim(self, lines: dict[int, str]) -> None:
        """Remove the least important lines until the rest fits: a line may be indented below more than was counted."""
        total = sum(map(len, lines.values())) + len(lines)
        for number in reversed(self._kept):
            if total <= self._limit:
                return
            total -= len(lines.pop(number)) + 1


def _container(element: _Element) -> _Element | None:
    """Return the closest element around this one that tells it from others of its kind."""
    parent = element.parent
    while parent is not None and parent.role in _INTERACTIVE:
        parent = parent.parent
    return parent


def _cut(text: str) -> str:
    if len(text) <= NAME:
        return text
    # Without half of an escape at the end.
    return text[:NAME].rstrip("\\'") + "..."
