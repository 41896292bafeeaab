"""Facts of steps: the part of a call that a test of it needs later, without secrets, in at most LIMIT bytes of JSON.

A service gives them with a result. The journal redacts them as it redacts results, and shortens them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from ..json_codec import JSON, dumps, loads
from .redaction import Redactor
from .secret_texts import SLACK, SecretTexts

LIMIT: Final = 2048
"""Bytes of the facts of one call."""
LINE: Final = 120
"""Characters kept of a line of a page, and of other members of lists."""
TEXT: Final = 500
"""Characters kept of other texts."""
LONGEST_LINE: Final = LINE + SLACK
LONGEST_TEXT: Final = TEXT + SLACK
"""Characters that a service gives of a line and of a text, so that a secret is found that goes beyond the kept part."""
SHORTENED: Final = ("gone", "appeared", "values")
"""The facts that are shortened first, from their ends."""

_PLAIN: Final = frozenset({int, float, bool, type(None)})
"""Types of scalars that are secret by their names only."""
_LITERAL: Final = re.compile(r"""r?"((?:[^"\\]|\\.)*)"|r?'((?:[^'\\]|\\.)*)'""")
"""Matches the string literals of a locator."""


def write_facts(facts: JSON, redactor: Redactor, secrets: SecretTexts) -> str | None:
    """Return the facts of a call as the journal keeps them, as JSON; None if nothing is left of them."""
    if not secrets.complete:
        return None
    redaction = _Redaction(redactor, secrets)
    return _fit({key: redaction.fact(key, value) for key, value in facts.items()})


def redact_again(facts: object, redactor: Redactor) -> JSON | None:
    """Return facts that another journal has kept, as write_facts() would keep them; None if nothing is left of them."""
    if not isinstance(facts, dict):
        return None
    redaction = _Redaction(redactor, SecretTexts(()))
    shown = {key: redaction.kept_fact(key, value) for key, value in cast("JSON", facts).items()}
    text = _fit(shown)
    return None if text is None else loads(text)


def _fit(facts: JSON) -> str | None:
    """Return facts as JSON of at most LIMIT bytes; None if there are none."""
    facts = {key: value for key, value in facts.items() if value not in (None, [], {})}
    text = dumps(facts)
    if facts and len(text) <= LIMIT and text.isascii():
        return text
    for key in (*SHORTENED, *reversed(facts)):
        while len(text.encode()) > LIMIT and key in facts:
            _shorten(facts, key)
            text = dumps(facts)
    return text if facts else None


def _shorten(facts: JSON, key: str) -> None:
    """Remove the last member of a fact, or all of a fact that has no further ones."""
    value: Any = facts[key]
    if key == "target" or not isinstance(value, dict | list) or len(cast("JSON", value)) == 1:
        del facts[key]
    elif isinstance(value, dict):
        cast("JSON", value).popitem()
    else:
        cast("list[object]", value).pop()


class _Redaction:
    """Removes secrets from the facts of one call."""

    def __init__(self, redactor: Redactor, secrets: SecretTexts) -> None:
        self._redactor = redactor
        self._secrets = secrets

    def fact(self, key: str, value: object) -> object:
        """Return a fact that a service gave."""
        if key == "values":
            fields = cast("JSON", value) if isinstance(value, dict) else {"": ""}
            if _PLAIN.issuperset(map(type, fields.values())) and not any(
                map(self._redactor.names_secret, fields)
            ):
                return {_pointer(name): member for name, member in fields.items()}
            # As a whole: names around a value, and texts beside it, tell that it is secret.
            redacted = self._redactor.value(cast("object", value), secrets=self._secrets or None)
            return dict(_leaves(redacted, ""))
        return self.kept_fact(key, value)

    def kept_fact(self, key: str, value: object) -> object:
        """Return a fact of the form in which the journal keeps it; its values have JSON pointers already."""
        if key == "target":
            return self._target(value)
        if key == "targets":
            # Without one of them, the others would no longer be in the order of the arguments.
            targets = (
                [*map(self._target, cast("list[object]", value))]
                if isinstance(value, list)
                else [None]
            )
            return None if None in targets else targets
        if isinstance(value, list):
            return [
                self._text(line, LINE)
                for line in cast("list[object]", value)
                if isinstance(line, str)
            ]
        if isinstance(value, str):
            return self._text(value, TEXT)
        return self._redactor.value(value, TEXT)

    def _text(self, text: str, limit: int) -> str:
        text = self._secrets.hide(text, was_cut=len(text) == limit + SLACK)
        return self._redactor.beginning(text, limit)

    def _target(self, value: object) -> JSON | None:
        """Return a target, or None if its locator has a secret and so finds nothing later."""
        target = cast("JSON", value) if isinstance(value, dict) else {}
        if "locator" not in target:
            return None
        code = f"{target.get('scope', '')} {target['locator']}"
        literals = [match[1] or match[2] or "" for match in _LITERAL.finditer(code)]
        # One by one: beside the code around it, the text of a label looks like an assignment.
        is_plain = all(self._text(literal, TEXT) == literal for literal in literals)
        members = ("locator", "kind", "scope", "fragile")
        shown = {key: target[key] for key in members if key in target}
        return shown if is_plain and len(code) <= TEXT else None


def _pointer(key: str) -> str:
    """Return the JSON pointer from an object to its member."""
    if "~" in key or "/" in key:
        key = key.replace("~", "~0").replace("/", "~1")
    return "/" + key


def _leaves(value: object, pointer: str) -> Iterator[tuple[str, object]]:
    """Yield the scalars in a JSON value with their JSON pointers."""
    if isinstance(value, dict):
        for key, member in cast("dict[object, object]", value).items():
            yield from _leaves(member, pointer + _pointer(str(key)))
    elif isinstance(value, list):
        for number, member in enumerate(cast("list[object]", value)):
            yield from _leaves(member, f"{pointer}/{number}")
    else:
        yield pointer, value
