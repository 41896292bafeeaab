"""Proposes edits of the text of a client's file: JSON with comments, TOML, YAML. Comments, order and all other lines stay.

Nothing here parses. The caller tries the proposals in turn, and takes the first one with the values that are wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, cast

from ...sessions.json_codec import JSON

_UNIT: Final = "  "
_SKIPPED: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT: Final = re.compile(r"([ \t]*(?://[^\n\"]*)?)\Z")
"""Matches a comment at the end of a text; with a quotation mark it may be a part of an address."""
_LINE_END: Final = re.compile(r"[^\S\r\n]*(?://[^\r\n]*)?(?=\r?\n)")
_OWN_LINE: Final = re.compile(rf"{_LINE_END.pattern}\r?\n([ \t]*)[^\s}}]")
_BARE_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ENDS: Final = 8
"""The places that are tried as the end of an entry."""


def format_of(path: Path) -> str:
    """Return json, toml or yaml."""
    return {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}.get(path.suffix.lower(), "json")


def render(kind: str, keys: Sequence[str], name: str, entry: JSON) -> str:
    """Return the text of an entry, without indentation."""
    if kind == "json":
        return f"{_quoted(name)}: " + json.dumps(entry, ensure_ascii=False, indent="\t")
    if kind == "yaml":
        pairs = [f"{_UNIT}{_key(key)}: {_quoted(value)}" for key, value in entry.items()]
        return "\n".join([f"{_key(name)}:", *pairs])
    pairs = [f"{_key(key)} = {_toml(value)}" for key, value in entry.items()]
    return "\n".join([f"[{'.'.join(map(_key, (*keys, name)))}]", *pairs])


def insertions(kind: str, text: str, keys: Sequence[str], entry: str) -> Iterator[str]:
    """Yield texts with one more entry below `keys`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    apart = "" if text.endswith("\n") or not text else newline
    if kind == "json":
        text = text if text.strip() else f"{{{newline}}}{text or newline}"
        for depth in range(len(keys), -1, -1):
            yield from _into_objects(text, keys[:depth], keys[depth:], entry.split("\n"), newline)
    elif kind == "toml":
        apart += newline if text else ""
        yield text + apart + entry.replace("\n", newline) + newline
    else:
        for match in re.finditer(rf"^{keys[0]}:(?: *(?:\{{\}}|~|null))?(.*\n)", text, re.MULTILINE):
            first = re.match(r"(?:[ \t]*(?:#.*)?\r?\n)*( *)", text[match.end() :])
            indent = (first[1] if first else "") or _UNIT
            lines = "".join(f"{indent}{line}{newline}" for line in entry.split("\n"))
            yield f"{text[: match.start()]}{keys[0]}:{match[1]}{lines}{text[match.end() :]}"
        lines = "".join(f"{_UNIT}{line}{newline}" for line in entry.split("\n"))
        yield f"{text}{apart}{keys[0]}:{newline}{lines}"


def _into_objects(
    text: str, keys: Sequence[str], missing: Sequence[str], lines: list[str], newline: str
) -> Iterator[str]:
    """Yield JSON with an entry as the first of an object, in objects with the last of the keys, the outer ones first."""
    pattern = rf"{re.escape(_quoted(keys[-1]))}\s*:\s*{{" if keys else rf"{_SKIPPED.pattern}{{"
    found = re.finditer(pattern, text, re.DOTALL) if keys else [re.match(pattern, text, re.DOTALL)]
    for match in sorted(filter(None, found), key=lambda each: len(_indent(text, each.start()))):
        start = match.end()
        following = _SKIPPED.match(text, start)
        is_empty = following is not None and text.startswith("}", following.end())
        outer = _indent(text, match.end() - 1)
        line_end = _LINE_END.match(text, start)
        own_line = _OWN_LINE.match(text, start)
        unit = outer[: len(outer) // max(len(keys), 1)] or _UNIT
        indent = own_line[1] if own_line else outer + unit
        place, behind = start, text[start:]
        if line_end is not None:
            place, behind = line_end.end(), text[line_end.end() :]
        else:
            behind = newline + (outer if is_empty else indent) + behind.lstrip(" \t")
        nested = lines
        for key in reversed(missing):
            nested = [f"{_quoted(key)}: {{", *("\t" + line for line in nested), "}"]
        body = "".join(
            newline + indent + unit * (len(line) - len(line.lstrip("\t"))) + line.lstrip("\t")
            for line in nested
        )
        yield text[:place] + (body if is_empty else _COMMENT.sub(r",\1", body, count=1)) + behind


def cuts(kind: str, text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield texts without an entry, each with the entry, without indentation."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    key = rf"""["']?{re.escape(_quoted(name)[1:-1])}["']?"""
    head = re.compile(rf"[ \t]*\[[^\]]*\.{key}[\].]" if kind == "toml" else rf"[ \t]*{key}[ \t]*:")
    starts = [n for n, line in enumerate(lines) if head.match(line)]
    for start in sorted(starts, key=lambda n: _width(lines[n])):
        width = _width(lines[start])
        ends = [n for n in range(start + 1, len(lines)) if _may_end(kind, lines[n], width)]
        for end in [*ends[:_ENDS], len(lines)]:
            stop = end
            while kind != "json" and stop > start and re.match(r"\s*(#|$)", lines[stop - 1]):
                stop -= 1
            if kind == "json" and _is_closed_by(lines[end:], width):
                stop += 1
            before, entry = "".join(lines[:start]), "".join(lines[start:stop]).rstrip()
            rest = "".join(lines[stop:])
            if kind == "json" and _SKIPPED.sub("", rest, count=1).startswith("}"):
                # Other readers take no trailing comma.
                before = re.sub(rf",(?={_COMMENT.pattern[:-2]}\s*\Z)", "", before)
            if entry:
                entry = dedent(entry.replace("\r\n", "\n"))
                yield before + rest, re.sub(rf",{_COMMENT.pattern}", r"\1", entry, count=1)


def _may_end(kind: str, line: str, width: int) -> bool:
    if kind == "toml":
        return line.lstrip().startswith("[")
    return bool(line.strip()) and _width(line) <= width


def _is_closed_by(lines: Sequence[str], width: int) -> bool:
    """Whether the first line closes what began with that indentation, and not the table around it."""
    return bool(lines) and _width(lines[0]) == width and lines[0].lstrip()[0] in "}]"


def _width(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, max(position - 1, 0)) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _quoted(key)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, cast('list[Any]', value)))}]"
    return _quoted(value).replace("\x7f", "\\u007f")
