"""Writes to stdout and stderr, for all commands. Imports little: `statehold call` has no time for it.

Texts of others reach a terminal without control characters, and an encoding that lacks a character gets a replacement. A
stream that is closed gets nothing: the command has run, and its exit code says how it ended.
"""

from __future__ import annotations

import json
import os
import re
import sys

from ..sessions.one_line import without_controls
from .exit_codes import FAILURE, OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_STYLE = re.compile(r"(\x1b\[(?:[0-2]|3[1236])m)")
"""Matches the styles that the commands use; a text of another in the same style hides nothing."""
_UNSAFE_IN_JSON = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Matches the characters that control a terminal or reorder its text and that JSON leaves as they are."""
_NOT_ASCII = re.compile("[^\x00-\x7e]")


def end(code: int, *, lost: int = FAILURE) -> int:
    """Write the rest of stdout at the end of a command, and return its exit code, or `lost` if the rest is lost."""
    try:
        flush()
    except BrokenPipeError:
        # The reader of our output has what it wanted.
        discard()
        return OK
    except OSError as error:
        discard()
        return complain_of_output(error, lost)
    return code


def flush() -> None:
    """Write what stdout still holds.

    Raises:
        OSError: it cannot be written.
    """
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def complain_of_output(error: OSError, code: int) -> int:
    """Write to stderr that the output of a command, or a file of it, was not written, and return the exit code."""
    name = error.filename or "stdout"
    return complain(f"the result was not written: {name}: {error.strerror}", code)


def discard() -> None:
    """Discard the rest of stdout; the interpreter would complain at its exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is open and a terminal."""
    return stream is not None and stream.isatty()


def write(text: str, *, is_styled: bool = False, errors: str = "replace") -> None:
    """Write a text to stdout: as it is to a pipe or a file, without control characters to a terminal.

    `is_styled`: the styles of the commands stay. `errors`: the replacement of characters that the encoding lacks, by the
    names of the standard library.
    """
    if is_terminal(sys.stdout):
        parts = _STYLE.split(text) if is_styled else [text]
        text = "".join(part if n % 2 else without_controls(part) for n, part in enumerate(parts))
    _write(sys.stdout, text, errors)


def write_line(text: str) -> None:
    """Write a text to stdout as write() does, with a line break at its end."""
    write(text if text.endswith("\n") else f"{text}\n")


def write_json(document: object) -> None:
    """Write a JSON document to stdout in one line."""
    write_json_text(json.dumps(document, ensure_ascii=False))


def write_json_text(text: str) -> None:
    """Write a text that is JSON to stdout. Characters that a terminal or the encoding does not take are escaped."""
    encoding = _encoding_of(sys.stdout)
    pattern = _UNSAFE_IN_JSON if encoding.startswith("utf") else _NOT_ASCII
    if not (text.isascii() and "\x7f" not in text):
        text = pattern.sub(_escape, text)
    _write(sys.stdout, f"{text}\n", "replace")


def write_error(text: str) -> None:
    """Write a text to stderr without control characters, at once."""
    _write(sys.stderr, without_controls(text), "replace")
    if sys.stderr is not None:
        sys.stderr.flush()


def complain(text: str, code: int = FAILURE) -> int:
    """Write a line to stderr and return the exit code."""
    write_error(f"statehold: {text}\n")
    return code


def _write(stream: TextIO | None, text: str, errors: str) -> None:
    if stream is None:
        return
    encoding = _encoding_of(stream)
    stream.write(text.encode(encoding, errors).decode(encoding))


def _encoding_of(stream: TextIO | None) -> str:
    # A stream of a test may have none.
    return (stream and stream.encoding) or "utf-8"


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"
