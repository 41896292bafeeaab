"""The steps of a recording: journal entries of calls as calls that can be made again, and those that are left out."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ....sessions.json_codec import JSON
from ....sessions.records import JournalRecord
from .literals import Name, Part, Text
from .parameters import Parameters

ELEMENTS: Final = ("target", "startTarget", "endTarget")
"""The arguments of browser tools that name an element."""
DESCRIPTIONS: Final = ("element", "startElement", "endElement")
"""Arguments with an element in words, which change nothing."""
CUT: Final = frozenset({"truncated", "unencodable", "withheld"})
"""The members of arguments that the journal does not have as a whole."""
READS: Final = "it only reads"
KEPT_READS: Final = re.compile(r"browser_verify_\w+")
"""The browser's own assertions: they change nothing, and fail if the page is another one."""

_REF: Final = re.compile(r"(?:g\d+)?(?:t\d+)?(?:f\d+)?e\d+")
_LABELS: Final = frozenset({"get_by_label", "get_by_placeholder", "get_by_role", "get_by_text"})


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One call of the recording."""

    entry: JournalRecord
    facts: JSON
    is_browser: bool
    tool: str
    """Its name in the list of tools."""
    arguments: Mapping[str, object] | str
    """JSON whose texts are Text, or the name of a variable with all of them."""
    only_reads: bool = False
    is_fragile: bool = False
    """Whether a locator depends on the order of elements, on CSS, or on a number."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry that is no step of the test."""

    entry: JournalRecord
    reason: str
    facts: JSON
    """The facts of a call of the browser that only reads: the page is to say the same."""


class StepReader:
    """Makes steps of the entries of one session.

    `names` maps services and their tools to names in the list, `browsers` are the services that are built-in browsers, and
    `reads` the tools of those that change nothing.
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        prefixes: Mapping[str, str],
        browsers: frozenset[str],
        reads: frozenset[str],
    ) -> None:
        self._parameters = parameters
        self._prefixes = prefixes
        self._browsers = browsers
        self._reads = reads

    def read(self, entry: JournalRecord) -> RecordedStep | LeftOut:
        """Return the step of an entry, or why it is none."""
        facts, request = _members_of(entry.facts), _members_of(entry.request)
        tool, service = entry.tool or "", entry.service or ""
        if entry.status != "ok":
            reason = "it failed" if entry.status == "error" else f"it ended as {entry.status}"
            return LeftOut(entry, reason, {})
        is_browser = service in self._browsers
        if is_browser and self._is_superfluous(tool, request):
            return LeftOut(entry, READS, facts)
        name = self._prefixes.get(service, "") + tool
        if not CUT.isdisjoint(request) and len(request) <= 2:
            variable = self._parameters.require_arguments(entry.seq)
            return RecordedStep(entry, facts, is_browser, name, variable)
        arguments = _Arguments(self._parameters, entry.seq, facts if is_browser else None)
        written = arguments.write(request)
        if arguments.has_unknown_element:
            return LeftOut(entry, "its element has no locator", {})
        only_reads = is_browser and tool in self._reads
        return RecordedStep(
            entry, facts, is_browser, name, written, only_reads, arguments.is_fragile
        )

    def _is_superfluous(self, tool: str, request: Mapping[str, Any]) -> bool:
        if tool == "browser_tabs":
            return request.get("action") == "list"
        if tool == "browser_wait_for":
            return "text" not in request and "textGone" not in request
        return tool in self._reads and not KEPT_READS.fullmatch(tool)


class _Arguments:
    """Writes the arguments of one call, with the locators of its elements."""

    def __init__(self, parameters: Parameters, entry: int, facts: JSON | None) -> None:
        self.is_fragile = False
        self.has_unknown_element = False
        self._parameters = parameters
        self._entry = entry
        self._is_browser = facts is not None
        facts = facts or {}
        self._targets: list[JSON] = facts.get("targets") or [facts.get("target") or {}]

    def write(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        # From the last target on, since only some calls give one.
        self._targets.reverse()
        return dict(self._members(request))

    def _members(self, request: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        label = ""
        for key, value in request.items():
            if self._is_browser and key in DESCRIPTIONS:
                continue
            if self._is_browser and key in ELEMENTS and isinstance(value, str):
                text, label = self._element(value)
                yield key, text
            else:
                yield key, self._value(value, _label_beside(request) or label or key)

    def _value(self, value: object, label: str) -> object:
        if isinstance(value, str):
            return self._parameters.argument(
                value, self._entry, label, has_secrets=self._is_browser
            )
        if isinstance(value, list):
            return [self._value(each, label) for each in cast("list[object]", value)]
        if isinstance(value, dict):
            return dict(self._members(cast("JSON", value)))
        return value

    def _element(self, written: str) -> tuple[Text, str]:
        """Return the locator of an element and its name; without a fact what the caller wrote, unless that is a ref."""
        target = self._targets.pop() if self._targets else {}
        if "locator" not in target:
            self.has_unknown_element |= _REF.fullmatch(written) is not None
            return (written,), ""
        self.is_fragile |= bool(target.get("fragile"))
        code = ".".join(filter(None, (target.get("scope"), target["locator"])))
        return locator_text(code, self._parameters), _label_of(target["locator"])


def without_passing_lines(steps: Sequence[RecordedStep | LeftOut]) -> Iterator[JSON]:
    """Yield the facts of each step without lines that went away by themselves: a call that only reads found them gone."""
    passing: Counter[str] = Counter()
    kept: list[JSON] = []
    for step in reversed(steps):
        appeared = [line for line in step.facts.get("appeared", ()) if not passing.pop(line, 0)]
        kept.append({**step.facts, "appeared": appeared})
        if isinstance(step, LeftOut) or step.only_reads:
            passing.update(step.facts.get("gone", ()))
    return reversed(kept)


def _members_of(value: object) -> JSON:
    return cast("JSON", value) if isinstance(value, dict) else {}


def _label_beside(members: Mapping[str, Any]) -> str:
    """Return the name of a field of a form, or of a pair of a name and a value."""
    name = members.get("name")
    return name if isinstance(name, str) and "value" in members else ""


def _label_of(locator: str) -> str:
    """Return the name of the element of a locator."""
    try:
        node = ast.parse(locator, mode="eval").body
    except SyntaxError:
        return ""
    if not isinstance(node, ast.Call):
        return ""
    names = [option.value for option in node.keywords if option.arg == "name"] or node.args
    texts = [each.value for each in names if isinstance(each, ast.Constant)]
    return next((text for text in texts if isinstance(text, str)), "")


def locator_text(code: str, parameters: Parameters) -> Text:
    """Return a locator with names for parameters, and a pattern for a name with parts that always differ."""
    try:
        tree = ast.parse(code, mode="eval")
    except SyntaxError:
        return (code,)
    names = _Names(parameters)
    source = ast.unparse(names.visit(tree))
    parts: list[Part] = []
    for piece in re.split(r"(__name_\d+__)", source):
        if (text := names.texts.get(piece)) is not None:
            parts += text
        elif piece:
            parts.append(piece)
    return _joined(parts)


def _joined(parts: Sequence[Part]) -> Text:
    joined: list[Part] = []
    for part in parts:
        if joined and isinstance(part, str) and isinstance(last := joined[-1], str):
            joined[-1] = last + part
        else:
            joined.append(part)
    return tuple(joined)


class _Names(ast.NodeTransformer):
    """Puts placeholders into a locator for the texts that are not the same in each run."""

    def __init__(self, parameters: Parameters) -> None:
        self.texts: dict[str, list[Part]] = {}
        """The source of each placeholder."""
        self._parameters = parameters

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if method not in _LABELS:
            return node
        if method == "get_by_role":
            for option in node.keywords:
                if option.arg == "name":
                    option.value = self._replaced(node, option.value)
        elif node.args:
            node.args[0] = self._replaced(node, node.args[0])
        return node

    def _replaced(self, node: ast.Call, text: ast.expr) -> ast.expr:
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            return text
        parts = self._parameters.pattern(text.value)
        if not any(isinstance(part, Name) for part in parts):
            return text
        # A pattern is never exact, so its ends say that it is the whole text.
        node.keywords = [option for option in node.keywords if option.arg != "exact"]
        placeholder = f"__name_{len(self.texts)}__"
        quoted = [p.replace("'", r"\x27") if isinstance(p, str) else p for p in parts]
        self.texts[placeholder] = ["re.compile(r'^", *quoted, "$')"]
        return ast.Name(placeholder)
