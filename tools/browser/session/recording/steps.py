"""One step as reported by a page, and its line in Playwright's Python."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

Kind = Literal["aim", "click", "menu", "fill", "select", "files", "check", "uncheck", "press"]
KINDS: Final = get_args(Kind)
LONGEST: Final = 20_000
"""The longest message and, in characters, the longest text of a step."""


@dataclass(frozen=True, slots=True)
class Step:
    """A reported step. Its texts come from the page, so they are always written quoted."""

    kind: Kind
    path: tuple[str, ...]
    """CSS selectors of the element: one from the document, then one from each shadow root on the path."""
    guess: str
    """A locator to use if the element is gone before Playwright has found a better one."""
    number: int = -1
    """The number of the element in its page."""
    value: str = ""
    values: tuple[str, ...] = ()
    count: int = 1
    secret: bool = False

    @property
    def selector(self) -> str:
        return " >> ".join(f"css={part}" for part in self.path)

    def continues(self, last: Step) -> bool:
        """Return whether this replaces the last step: more text in the same field, or the second click of a double click."""
        if self.path != last.path or self.kind != last.kind:
            return False
        return self.kind == "fill" or (self.kind == "click" and self.count > last.count)


def parse_step(message: object) -> Step | None:
    """Return the step in a message of a page, or None if the message is invalid."""
    if not isinstance(message, str) or len(message) > LONGEST * 4:
        return None
    try:
        content: object = json.loads(message)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    step = cast("dict[str, Any]", content)
    path = _texts(step.get("path"))
    if step.get("kind") not in KINDS or not path:
        return None
    count, number = step.get("count"), step.get("number")
    return Step(
        cast("Kind", step["kind"]),
        path,
        _guess(step.get("guess"), path),
        number=number if isinstance(number, int) else -1,
        value=_text(step.get("value")),
        values=_texts(step.get("values")),
        count=count if isinstance(count, int) and 0 < count < 10 else 1,
        secret=step.get("secret") is True,
    )


def _text(value: object) -> str:
    return value[:LONGEST] if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    parts = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(_text(part) for part in parts[:100])


def _guess(value: object, path: tuple[str, ...]) -> str:
    properties = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    role, name, label = (_text(properties.get(key)) for key in ("role", "name", "label"))
    if role and name:
        return f"get_by_role({_quote(role)}, name={_quote(name)})"
    if label:
        return f"get_by_label({_quote(label)})"
    return f"locator({_quote(' >> '.join(path))})"


def _quote(text: str) -> str:
    """Return a text quoted as Playwright quotes texts of locators; the escapes of JSON are valid in Python, too."""
    return json.dumps(text)


def line_of(page: str, step: Step, locator: str) -> str:
    """Return the line of Python that repeats a step."""
    if step.secret:
        # A recording must not contain passwords.
        return f'await {page}.{locator}.fill("")  # the password is left out'
    calls = {
        "aim": "hover()",
        "click": "click()" if step.count == 1 else "dblclick()",
        "menu": "click(button='right')",
        "fill": f"fill({step.value!r})",
        "select": f"select_option(label={_one(step.values)})",
        "files": f"set_input_files({_one(step.values)})",
        "check": "check()",
        "uncheck": "uncheck()",
        "press": f"press({step.value!r})",
    }
    return f"await {page}.{locator}.{calls[step.kind]}"


def _one(values: tuple[str, ...]) -> str:
    return repr(values[0] if len(values) == 1 else list(values))
