"""The result of one browser call: a text in sections, followed by pictures and files."""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import datetime
from typing import Final, Literal, cast
from urllib.parse import ParseResult, SplitResult

from ....sessions.attribution import attribute_text, similar
from ....sessions.json_codec import JSON, well_formed
from ....sessions.one_line import without_hidden
from ....sessions.services import ToolResult
from ....sessions.times import timestamp
from ..secrets.named import NamedSecrets
from ..secrets.spellings import mask_logins
from .typescript import to_typescript

Codegen = Literal["python", "typescript", "none"]

ORDER: Final = (
    "Error",
    "Result",
    "Ran Playwright code",
    "Open tabs",
    "Page",
    "Modal state",
    "Snapshot",
    "Events",
)
"""The sections in the order in which they are written; agents written for @playwright/mcp look for these names."""

TEXT_LIMIT: Final = 2 * 2**20
"""The longest section in characters; a longer one is cut, with a remark."""

HEADING: Final = 200
"""Characters of a line that are compared with our headings."""
LEVEL: Final = 3
"""Signs in front of our headings."""
TITLE: Final = 500
ADDRESS: Final = 2000
"""The most characters shown of a title and of an address, which are in most answers."""

AUTHOR: Final = "page"
"""The author of texts that imitate our notes and headings."""
_LINES: Final = re.compile("([\n\r\u2028\u2029]+)")
_HASHES: Final = "#\uff03\ufe5f\u2d4c\u266f"
"""Characters that look like the sign of a heading."""
_HASH: Final = re.compile(f"[{_HASHES}]")
_SIGNS: Final = re.compile(r"[\W_]*")
_HEADING: Final = similar(*ORDER)
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that a terminal would interpret."""


class PageAnswer:
    """Collects the parts of a call's result. It is rendered once, at the end."""

    def __init__(self, codegen: Codegen = "python", *, secrets: NamedSecrets | None = None) -> None:
        """`secrets` are masked in all texts of the result."""
        self._secrets = NamedSecrets() if secrets is None else secrets
        self.is_error = False
        self._codegen: Codegen = codegen
        self._language = "python" if codegen == "python" else "js"
        """The language of the code under "Ran Playwright code"."""
        self.code_lines: list[str] = []
        """The steps of the call as code, also when the answer does not show them."""
        self._sections: dict[str, list[str]] = {}
        self._blocks: list[JSON] = []

    def withhold(self, text: str) -> None:
        """Replace all that was added by an error."""
        self._sections.clear()
        self._blocks.clear()
        self.error(text)

    def error(self, text: str) -> None:
        """Add an error message; the result is an error from then on."""
        self.is_error = True
        self._add("Error", text)

    def result(self, text: str) -> None:
        self._add("Result", text)

    def value(self, value: object) -> None:
        """Add a value that a page returned."""
        self._add("Result", as_json(value))

    def code(self, line: str) -> None:
        """Add a step in Playwright's Python. The answer shows it in the configured language, or not at all."""
        line = self.translated(line)
        self.code_lines.append(line)
        if self._codegen != "none":
            self._add("Ran Playwright code", line)

    def translated(self, line: str) -> str:
        """Return a line of Playwright's Python in the configured language, in Python if none is; secrets by name."""
        line = self._secrets.mask_code(line)
        return to_typescript(line) if self._codegen == "typescript" else line

    def script(self, code: str) -> None:
        """Add JavaScript of the caller that ran instead of steps."""
        if self._codegen != "none":
            self._language = "js"
            self._add("Ran Playwright code", code)

    def tabs(self, lines: list[str]) -> None:
        self._add("Open tabs", "\n".join(lines))

    def page(self, lines: list[str]) -> None:
        self._add("Page", "\n".join(lines))

    def modal(self, lines: list[str]) -> None:
        self._add("Modal state", "\n".join(f"- {line}" for line in lines))

    def snapshot(self, text: str, *, language: Literal["yaml", "diff"] = "yaml") -> None:
        self._add("Snapshot", f"```{language}\n{text}\n```")

    def events(self, lines: list[str]) -> None:
        """Add events, each as one line: texts of pages in them must not look like another section."""
        if lines:
            self._add("Events", "\n".join("- " + re.sub(r"\s+", " ", line) for line in lines))

    def image(self, data: bytes, mime: str) -> None:
        text = base64.b64encode(data).decode()
        self._blocks.append({"type": "image", "data": text, "mimeType": mime})

    def file(self, uri: str, name: str, mime: str, size: int) -> None:
        """Add a file of the session, which the caller can read as a resource."""
        self._blocks.append(
            {
                "type": "resource_link",
                "uri": well_formed(self._secrets.mask(uri)),
                "name": attribute_text(
                    without_hidden(well_formed(self._secrets.mask(name))), AUTHOR
                ),
                "mimeType": mime,
                "size": size,
            }
        )

    def _add(self, section: str, text: str) -> None:
        self._sections.setdefault(section, []).append(text)

    def render(self) -> ToolResult:
        """Return the result: the sections in their order, none longer than TEXT_LIMIT, then pictures and files."""
        parts: list[str] = []
        for name in ORDER:
            if name not in self._sections:
                continue
            text = mask_logins(self._secrets.mask("\n".join(self._sections[name])))
            if len(text) > TEXT_LIMIT:
                omitted = len(text) - TEXT_LIMIT
                text = f"{text[:TEXT_LIMIT]}\n[{omitted} more characters were left out]"
            # A snapshot needs no escaping: each of its lines begins with blanks or a sign, and other signs are escaped.
            if name != "Snapshot":
                text = _escape(text)
            if not text.isascii():
                text = without_hidden(text)
            if name == "Ran Playwright code":
                text = f"```{self._language}\n{text}\n```"
            parts.append(f"### {name}\n{text}")
        content: list[JSON] = [
            {"type": "text", "text": well_formed("\n".join(parts))},
            *self._blocks,
        ]
        payload: JSON = {"content": content}
        if self.is_error:
            payload["isError"] = True
        return ToolResult(payload)


def _escape(text: str) -> str:
    """Return a text of a page in which no line looks like one of ours and no character controls a terminal."""
    text = _CONTROL_CHARACTERS.sub(lambda match: _symbol_of(match[0]), text)
    if not _HASH.search(text):
        return text
    lines = _LINES.split(text)
    return "".join(f"[{AUTHOR}] {line}" if _imitates_heading(line) else line for line in lines)


def _imitates_heading(line: str) -> bool:
    """Whether a line looks like one of our own section headings, however it is spaced and spelled."""
    match = _SIGNS.match(line[:HEADING])
    signs = "" if match is None else match[0]
    return len(_HASH.findall(signs)) >= LEVEL and _HEADING(line[len(signs) : HEADING])


def _symbol_of(control: str) -> str:
    """Return the symbol of a control character, or the replacement character if it has none."""
    return chr(0x2400 + ord(control)) if control < " " else "\ufffd"


def as_json(value: object) -> str:
    """Return a page's value as JSON. Values that JSON cannot represent are written as in JavaScript."""
    try:
        return json.dumps(_to_json(value, ()), ensure_ascii=False, indent=2)
    except RecursionError:
        return '"[Nested too deeply]"'


def _to_json(value: object, around: tuple[int, ...]) -> object:
    """Return a JSON value for one of Playwright's; `around` are the ids of the containers around it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return (value or 0) if math.isfinite(value) else None
        case datetime():
            return timestamp(value.timestamp())
        case ParseResult() | SplitResult():
            return value.geturl()
        case re.Pattern():
            pattern = cast("re.Pattern[str]", value)
            flags = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
            return f"/{pattern.pattern}/{''.join(f for f, bit in flags.items() if pattern.flags & bit)}"
        case dict() | list():
            if id(cast("object", value)) in around:
                return "[Circular]"
            within = (*around, id(cast("object", value)))
            if isinstance(value, list):
                return [_to_json(item, within) for item in cast("list[object]", value)]
            return {key: _to_json(item, within) for key, item in cast("JSON", value).items()}
        case _:
            return str(value)
