"""Python source of values, with names in the place of parts of texts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

INDENT: Final = "    "
FORMAT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Name:
    """The place of an expression in a text, such as a parameter."""

    code: str


Part: TypeAlias = str | Name
Text: TypeAlias = Sequence[Part]
"""A text with names in the place of some of its parts."""


def escape(text: str) -> str:
    """Return a text with escapes for backslashes and for characters that are not printed."""
    return "".join(
        "\\\\" if char == "\\" else char if char.isprintable() else _escaped(char) for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def literal(text: Text) -> str:
    """Return the source of a text: a name, or a string, which is raw where that saves escapes."""
    if len(text) == 1 and isinstance(text[0], Name):
        return text[0].code
    plain = "".join(part for part in text if isinstance(part, str))
    is_formatted = any(isinstance(part, Name) for part in text)
    is_raw = (
        "\\" in plain
        and not plain.endswith("\\")
        and not ('"' in plain and "'" in plain)
        and plain.isprintable()
    )
    quote = "'" if plain.count('"') > (0 if is_raw else plain.count("'")) else '"'
    prefix = "r" * is_raw + "f" * is_formatted
    body = "".join(_in_quotes(part, quote, is_raw, is_formatted) for part in text)
    return f"{prefix}{quote}{body}{quote}"


def _in_quotes(part: Part, quote: str, is_raw: bool, is_formatted: bool) -> str:
    if isinstance(part, Name):
        return f"{{{part.code}}}"
    body = part if is_raw else escape(part).replace(quote, f"\\{quote}")
    return body.replace("{", "{{").replace("}", "}}") if is_formatted else body


def value_source(value: object) -> str:
    """Return the source of a JSON value whose texts are Text."""
    if isinstance(value, tuple):
        return literal(cast("Text", value))
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return f"{{{', '.join(f'{literal([key])}: {value_source(v)}' for key, v in members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_source, cast('list[object]', value)))}]"
    return repr(value)


def lay_out(source: str) -> str:
    """Return a module as `ruff format` lays it out, by the settings of the folder, if ruff is there; else as it is."""
    ruff = shutil.which("ruff")
    if ruff is None:
        return source
    command = [ruff, "format", "--stdin-filename", "test_recorded.py", "-"]
    try:
        # Half a surrogate cannot be encoded; it is escaped in each literal, and a name of a session has none.
        done = subprocess.run(
            command, input=source.encode(), capture_output=True, timeout=FORMAT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeEncodeError):
        return source
    return done.stdout.decode()
