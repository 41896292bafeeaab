"""The facts of a step in the browser, for the journal: its elements as locators, and the effects on the page."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal

from ....sessions.journal.facts import LONGEST_LINE, LONGEST_TEXT
from ....sessions.json_codec import JSON, well_formed
from ..secrets.spellings import mask_logins

Kind = Literal["testid", "role", "label", "placeholder", "text", "css"]

SEVERAL: Final = frozenset({"browser_drag", "browser_fill_form"})
"""The tools that act on several elements."""
MAX_LINES: Final = 20
"""The most lines of a page that appeared, and the most that are gone."""

_KINDS: Final[dict[str, Kind]] = {
    "get_by_test_id": "testid",
    "get_by_role": "role",
    "get_by_label": "label",
    "get_by_placeholder": "placeholder",
    "get_by_text": "text",
    "get_by_alt_text": "text",
    "get_by_title": "text",
    "locator": "css",
}
_DIGIT: Final = re.compile(r"\d")
_MARKS: Final = re.compile(r" \[(?:ref=[gtfe\d]+|box=[^\]]*|cursor=pointer|active)\]")
"""Matches the parts of a line of a snapshot that change from page to page."""
_SAYING: Final = re.compile(r"""'?\w+ "|'?[\w-]+.*: .*\w""")
"""Matches the lines that have a name or a text."""
_LOUD: Final = re.compile(r"- ('?(?:heading|alert|status|dialog|alertdialog)\b.*)")
"""Matches the ends of the lines that tell one page from another."""
_QUIET: Final = re.compile(
    r"- ('?(?:blockquote|caption|code|definition|generic|listitem|log|note|paragraph|row|term|text|time)\b.*)"
)
"""Matches the ends of the lines with a text of a page."""
MAX_CANDIDATES: Final = 40
"""Lines with a text that are looked at on a new page."""
MAX_PLACES: Final = 50
"""Places of a text in a snapshot that are looked at to find a line."""


@dataclass(frozen=True, slots=True)
class StepTarget:
    """An element of a step, as a locator that finds it later."""

    locator: str
    kind: Kind
    scope: str = ""
    """The locator of a part of the page or of a frame around it."""
    fragile: bool = False
    """Whether the locator depends on the order of elements, on CSS, or on a number in a name."""

    @property
    def code(self) -> str:
        """The locator with its scope."""
        return f"{self.scope}.{self.locator}" if self.scope else self.locator

    def json(self) -> JSON:
        target: JSON = {"locator": self.locator, "kind": self.kind}
        if self.scope:
            target["scope"] = self.scope
        if self.fragile:
            target["fragile"] = True
        return target


def role_target(locator: str, scope: str = "") -> StepTarget:
    """Return the target for a locator by role and exact name."""
    is_fragile = bool(_DIGIT.search(locator) or _DIGIT.search(scope))
    return StepTarget(locator, "role", scope, is_fragile)


def target_of(code: str) -> tuple[StepTarget, StepTarget | None]:
    """Return the target for a locator in Playwright's Python, and the same with an exact text, if its text is not exact.

    Raises:
        ValueError: The code is no locator.
    """
    code = code.removeprefix("page.")
    source = code.encode()
    try:
        node = ast.parse(code, mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(code) from error
    # From the end, the last method that finds elements; what follows it chooses among them.
    while not (isinstance(node, ast.Call) and _method_of(node) in _KINDS):
        match node:
            case ast.Attribute(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                raise ValueError(code)
    kind = _KINDS[_method_of(node)]
    scope = ""
    if isinstance(node.func, ast.Attribute):
        scope = source[: node.func.value.end_col_offset].decode()
    locator = code[len(scope) + 1 :] if scope else code
    is_chosen = node.end_col_offset != len(source)
    texts = ast.walk(node) if kind not in ("testid", "css") else ()
    has_number = any(isinstance(each, ast.Constant) and _has_digit(each.value) for each in texts)
    is_fragile = is_chosen or kind == "css" or has_number or _is_fragile(scope)
    target = StepTarget(locator, kind, scope, is_fragile)
    if is_chosen or not _can_be_exact(node, kind):
        return target, None
    return target, StepTarget(f"{locator[:-1]}, exact=True)", kind, scope, is_fragile)


def _method_of(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _has_digit(value: object) -> bool:
    return isinstance(value, str) and _DIGIT.search(value) is not None


def _is_fragile(scope: str) -> bool:
    """Whether a scope chooses by number, or has a number in a name. Frames are found by CSS."""
    return bool(_DIGIT.search(scope)) or scope.endswith((".first", ".last"))


def _can_be_exact(node: ast.Call, kind: Kind) -> bool:
    options = {option.arg: option.value for option in node.keywords}
    text = options.get("name") if kind == "role" else node.args[0] if node.args else None
    is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return is_text and "exact" not in options and kind not in ("testid", "css")


@dataclass(slots=True)
class StepFacts:
    """Collects the facts of one call. It lives as long as the call."""

    targets: list[StepTarget] = field(default_factory=list[StepTarget])
    """The elements, in the order of the arguments."""
    url: str = ""
    title: str = ""
    asks: str = ""
    """The message of what waits for an answer after the call."""
    dialogs: list[str] = field(default_factory=list[str])
    """The messages of the dialogs that the call answered."""
    appeared: Sequence[str] = ()
    gone: Sequence[str] = ()
    files: list[str] = field(default_factory=list[str])
    """The names of downloads."""

    def record_change(self, before: str | None, after: str, difference: str | None) -> None:
        """Record the change of the page between two snapshots. `difference`: None if too much changed, or for a new page."""
        if difference is None:
            self.appeared = [_without_quotes(line) for line in _lines_of_page(before or "", after)]
            return
        changed: dict[str, list[str]] = {"+": [], "-": []}
        for line in difference.splitlines():
            if (lines := changed.get(line[:1])) is not None:
                text = _MARKS.sub("", line[1:].lstrip().removeprefix("- "))
                if _SAYING.match(text):
                    lines.append(_without_quotes(text))
        appeared, gone = changed["+"], changed["-"]
        self.appeared, self.gone = _without(appeared, gone), _without(gone, appeared)
        # Another element may have the same line.
        self.gone = [line for line in self.gone if not _has_line(after, line)]

    def json(self, tool: str, *, mask: Callable[[str], str]) -> JSON:
        """Return the facts of a call of a tool as the journal takes them. `mask` replaces named secrets in a text."""
        targets = [target.json() for target in self.targets]
        facts: JSON = {}
        if targets:
            facts |= {"targets": targets} if tool in SEVERAL else {"target": targets[-1]}
        for key, text in (("url", self.url), ("title", self.title), ("asks", self.asks)):
            if text:
                facts[key] = _shown(text, mask)[:LONGEST_TEXT]
        for key in ("dialogs", "files", "appeared", "gone"):
            lines: Sequence[str] = getattr(self, key)
            if lines:
                facts[key] = [_shown(line, mask)[:LONGEST_LINE] for line in lines]
        return facts


def _lines_of_page(before: str, after: str) -> list[str]:
    """Return the lines that tell a new page from the one before, then its first texts, all without marks."""
    old = dict.fromkeys(_lines(_LOUD, before))
    lines = dict.fromkeys(line for line in _lines(_LOUD, after) if line not in old)
    for line in islice(_lines(_QUIET, after), MAX_CANDIDATES):
        if len(lines) >= MAX_LINES:
            break
        name = line.partition(": ")[2].strip('"')
        # A label is the name of its field, too.
        if f'"{name}" [' not in after and not _has_line(before, _without_quotes(line)):
            lines[line] = None
    return list(lines)[:MAX_LINES]


def _lines(pattern: re.Pattern[str], snapshot: str) -> Iterator[str]:
    """Yield the lines with a name or a text whose ends match a pattern, without marks."""
    for match in pattern.finditer(snapshot):
        # Not anchored, which would take ten times as long.
        before = snapshot[snapshot.rfind("\n", 0, match.start()) + 1 : match.start()]
        line = _MARKS.sub("", match[1])
        if not before.strip(" ") and _SAYING.match(line):
            yield line


def _has_line(snapshot: str, line: str) -> bool:
    """Return whether a snapshot has a line, which is _without_quotes(); also if its text has too many places to say so."""
    # The marks are between the role or the name and the text: look for the longer one, and compare the lines that have it.
    key, _, text = line.partition(": ")
    probe = text if len(text) > len(key) else key
    position = -len(probe)
    for _ in range(MAX_PLACES):
        position = snapshot.find(probe, position + len(probe))
        if position < 0:
            return False
        start, end = snapshot.rfind("\n", 0, position) + 1, snapshot.find("\n", position)
        found = snapshot[start : end if end >= 0 else None].lstrip(" ").removeprefix("- ")
        if _without_quotes(_MARKS.sub("", found)) == line:
            return True
    return True


def _without_quotes(line: str) -> str:
    """Return a line of a snapshot without the quotes that YAML needs around a key, and without a colon at its end."""
    if line.startswith("'"):
        key, separator, value = line[1:].rpartition("':")
        line = f"{key}:{value}" if separator else line[1:].removesuffix("'")
        line = line.replace("''", "'")
    return line.removesuffix(":")


def _shown(text: str, mask: Callable[[str], str]) -> str:
    return well_formed(mask_logins(mask(text)))


def _without(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the first lines that are not among others: a ref may be all that changed in a line."""
    counts = Counter(others)
    remaining: list[str] = []
    for line in lines:
        if counts[line]:
            counts[line] -= 1
        else:
            remaining.append(line)
    return remaining[:MAX_LINES]
