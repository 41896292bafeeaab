"""The parameters of a test: values that its reader may change, and values that the recording does not have."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ....sessions.journal.redaction import REDACTED
from ....sessions.journal.wildcards import WILDCARDS, Wildcard, split_at_wildcards
from .literals import Name, Part

MASK: Final = "\u2022\u2022\u2022\u2022\u2022\u2022"
"""The mask of a secret in the answers of the browser."""
PREFIX: Final = "TEST_"
"""The beginning of the environment variables that a test reads, so that it reads no others."""
RESERVED: Final = frozenset(
    {
        *("Session", "annotations", "pytest", "re", "result", "s", "statehold_session"),
        *("has_file", "matches", "page_lacks", "page_says", "says", "value_at"),
        *("require_arguments", "require_variable", *WILDCARDS),
    }
)
"""Names that a test has already."""

_HIDDEN: Final = re.compile(rf"{re.escape(REDACTED)}|{MASK}")
_SECRET_NAME: Final = re.compile(r"%([A-Za-z_]\w*)%", re.ASCII)
_ASSIGNED: Final = re.compile(r"([A-Za-z][\w-]*)[\"']?\s?[=: ]\s?[\"']?\Z")
_LOGIN: Final = re.compile(r"://[^\s/@:]*:\Z")
_SPECIAL: Final = re.compile(r"[\\.^$*+?{}\[\]|()]")


Helper: TypeAlias = Literal["require_variable", "require_arguments"]


@dataclass(frozen=True, slots=True)
class RequiredValue:
    """A value that the recording does not have. The test reads it from an environment variable."""

    environment_name: str
    helper: Helper
    entries: list[int] = field(default_factory=list[int])
    """The positions of the entries whose calls need it."""

    @property
    def variable(self) -> str:
        """Its name in the test: password for TEST_PASSWORD."""
        name = self.environment_name.removeprefix(PREFIX).lower()
        return name if is_free(name) else f"value_{name}"


@dataclass(slots=True)
class Parameters:
    """The parameters of one test. It notes the names that texts use."""

    values: Mapping[str, str]
    """The values in the recording, by the names of the parameters."""
    required: dict[str, RequiredValue] = field(default_factory=dict[str, RequiredValue], init=False)
    """By the environment variables."""
    secrets: set[str] = field(default_factory=set[str], init=False)
    """Names of secrets that the server has."""
    wildcards: set[str] = field(default_factory=set[str], init=False)
    uses_escape: bool = field(default=False, init=False)
    _used: set[str] = field(default_factory=set[str], init=False)

    @property
    def unused(self) -> list[str]:
        """The parameters that no text has used."""
        return [name for name in self.values if name not in self._used]

    def argument(
        self, text: str, entry: int, label: str, *, has_secrets: bool = False
    ) -> tuple[Part, ...]:
        """Return an argument with names for the parameters, and for secrets that were not recorded.

        `label` names the value if nothing in the text does. `has_secrets`: it may name secrets of the server.
        """
        if has_secrets:
            self.secrets.update(_SECRET_NAME.findall(text))
        parts: list[Part] = []
        end = 0
        for match in _HIDDEN.finditer(text):
            parts += self._named(text[end : match.start()])
            parts.append(Name(self._require(_label_of(text[: match.start()]) or label, entry)))
            end = match.end()
        return (*parts, *self._named(text[end:])) or ("",)

    def require_arguments(self, entry: int) -> str:
        """Return the name of the arguments of a call, which were not recorded as a whole."""
        return self._require(f"arguments_{entry}", entry, "require_arguments")

    def _require(self, label: str, entry: int, helper: Helper = "require_variable") -> str:
        """Return the name of a value that was not recorded, made from a label. Equal labels name one value."""
        words = re.sub(r"[^A-Z0-9]+", "_", label.upper()).strip("_") or "VALUE"
        name = f"{PREFIX}{words}"
        while (value := RequiredValue(name, helper)).variable in self.values:
            name += "_VALUE"
        value = self.required.setdefault(name, value)
        if entry not in value.entries:
            value.entries.append(entry)
        return value.variable

    def text(self, text: str) -> tuple[Part, ...]:
        """Return a text with names for the parameters."""
        return tuple(self._named(text)) or ("",)

    def _named(self, text: str) -> Iterator[Part]:
        """Yield the parts of a text, with names for the values of parameters."""
        end = 0
        for match in self._values.finditer(text) if self.values else ():
            if match.start() > end:
                yield text[end : match.start()]
            name = next(name for name, value in self.values.items() if value == match[0])
            self._used.add(name)
            yield Name(name)
            end = match.end()
        if end < len(text):
            yield text[end:]

    @property
    def _values(self) -> re.Pattern[str]:
        """Matches the values of the parameters, the longest first, where they are no part of a word."""
        values = sorted(filter(None, self.values.values()), key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, values))})(?!\w)")

    def pattern(self, text: str) -> tuple[Part, ...]:
        """Return the regular expression of a text: with names for the parameters, and wildcards for what always differs."""
        return tuple(self._pattern_parts(text))

    def _pattern_parts(self, text: str) -> Iterator[Part]:
        for part in self._named(text):
            if isinstance(part, Name):
                self.uses_escape = True
                yield Name(f"re.escape({part.code})")
                continue
            for piece in split_at_wildcards(part):
                if isinstance(piece, Wildcard):
                    self.wildcards.add(piece.name)
                    yield Name(piece.name)
                else:
                    yield ".*".join(map(escape_pattern, piece.split(REDACTED)))


def _label_of(before: str) -> str:
    """Return the name of a value from the text before it; "" for none."""
    if _LOGIN.search(before):
        return "password"
    assigned = _ASSIGNED.search(before)
    return "" if assigned is None else assigned[1]


def escape_pattern(text: str) -> str:
    """Return a regular expression for a text; blanks and other signs stay readable."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def is_free(name: str) -> bool:
    """Return whether a name may be that of a parameter."""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in RESERVED
