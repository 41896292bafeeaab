"""Python source of values, with names in the place of parts of texts, laid out as `ruff format` does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

WIDTH: Final = 100
"""The most characters of a line."""
INDENT: Final = "    "

_SIGNS: Final = frozenset("\u20ac\u00a3\u00a5\u00b0\u2026\u00ab\u00bb\u201c\u201d\u2022")
"""Signs beyond ASCII that are written as they are. Many others look like signs of ASCII."""
_WORD: Final = re.compile(r"\w+")
_AMBIGUOUS: Final = re.compile(
    r"[\u0131\u017f\u0184\u018d\u01a6-\u01a7\u01b7\u01bc-\u01bd\u01c0\u01c3\u021c\u0222-\u0223\u0241\u0251\u0261\u0263"
    r"\u0269-\u026a\u026f\u028b\u028f\u0294\u02b9-\u02cb\u02d0\u0374\u037a\u037f\u0391-\u0392\u0395-\u0397\u0399-\u039a"
    r"\u039c-\u039d\u039f\u03a1\u03a4-\u03a5\u03a7\u03b1\u03b3\u03b9\u03bd\u03bf\u03c1\u03c3\u03c5\u03d2\u03dc\u03e8"
    r"\u03f1-\u03f3\u03f9-\u03fa\u0405-\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c-\u041e\u0420-\u0423\u0425\u042c"
    r"\u0430-\u0431\u0433\u0435\u043e\u0440-\u0441\u0443\u0445\u0455-\u0456\u0458\u0461\u0474-\u0475\u04ae-\u04af\u04bb"
    r"\u04bd\u04c0\u04cf\u04e0\u0501\u050c\u051b-\u051d\u054d\u054f\u0555\u0561\u0563\u0566\u0570\u0578\u057c-\u057d\u0581"
    r"\u0584-\u0585\u05d5\u05d8\u05d9\u05df\u05e1\u0627\u0647\u06be\u06c1\u06d5]"
)
"""Letters that look like others: linters warn of a word whose letters beyond ASCII are all of these."""
_NAMED_ESCAPES: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


@dataclass(frozen=True, slots=True)
class Name:
    """The place of an expression in a text, such as a parameter."""

    code: str


Part: TypeAlias = str | Name
Text: TypeAlias = Sequence[Part]
"""A text with names in the place of some of its parts."""


@dataclass(frozen=True, slots=True)
class Brackets:
    """A call or a literal with brackets around its items. `items` are source, or further groups."""

    head: str
    items: Sequence[Source]
    tail: str
    is_call: bool = False


@dataclass(frozen=True, slots=True)
class TextSource:
    """The source of a text, behind a key such as `url=`."""

    text: Text
    key: str = ""


Source: TypeAlias = str | TextSource | Brackets


def escape(text: str, code: str | None = None) -> str:
    """Return a text with escapes for control characters and for characters that look like others.

    `code` is what a backslash becomes; None leaves backslashes as they are.
    """
    ambiguous: set[int] = set()
    if not text.isascii():
        for word in _WORD.finditer(text):
            foreign = [n for n in range(*word.span()) if not text[n].isascii()]
            if all(_AMBIGUOUS.match(text[n]) for n in foreign):
                ambiguous.update(foreign)
    return "".join(
        code
        if char == "\\" and code
        else char
        if _is_plain(char) and n not in ambiguous
        else _escaped(char)
        for n, char in enumerate(text)
    )


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or char.isalpha() or char in _SIGNS


def _escaped(char: str) -> str:
    number = ord(char)
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


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
        and escape(plain) == plain
    )
    quote = "'" if plain.count('"') > (0 if is_raw else plain.count("'")) else '"'
    prefix = "r" * is_raw + "f" * is_formatted
    body = "".join(_in_quotes(part, quote, is_raw, is_formatted) for part in text)
    return f"{prefix}{quote}{body}{quote}"


def _in_quotes(part: Part, quote: str, is_raw: bool, is_formatted: bool) -> str:
    if isinstance(part, Name):
        return f"{{{part.code}}}"
    body = part if is_raw else escape(part, r"\\").replace(quote, f"\\{quote}")
    return body.replace("{", "{{").replace("}", "}}") if is_formatted else body


def value_source(value: object, key: str = "") -> Source:
    """Return the source of a JSON value whose texts are Text, behind a key."""
    if isinstance(value, tuple):
        return TextSource(cast("Text", value), key)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return Brackets(f"{key}{{", [value_source(v, f"{literal([k])}: ") for k, v in members], "}")
    if isinstance(value, list):
        return Brackets(f"{key}[", [value_source(v) for v in cast("list[object]", value)], "]")
    return f"{key}{value!r}"


def call(head: str, *items: Source) -> Brackets:
    """Return the source of a call; `head` is all in front of its bracket."""
    return Brackets(f"{head}(", items, ")", is_call=True)


def lay_out(source: Source, indent: str = INDENT, end: str = "") -> Iterator[str]:
    """Yield the lines of a source, none longer than WIDTH if that is possible."""
    line = f"{indent}{_flat(source)}{end}"
    if (
        len(line) <= WIDTH
        or isinstance(source, str)
        or (isinstance(source, Brackets) and not source.items)
    ):
        yield line
        return
    if isinstance(source, TextSource):
        yield from _pieces(source, indent, end)
        return
    inner = indent + INDENT
    items = f"{inner}{', '.join(map(_flat, source.items))}"
    yield f"{indent}{source.head}"
    if source.is_call and len(items) <= WIDTH:
        yield items
    else:
        for item in source.items:
            # Linters take strings one below the other in a list for items.
            if source.tail == "]" and _is_long(item, inner):
                yield f"{inner}("
                yield from lay_out(item, inner + INDENT)
                yield f"{inner}),"
            else:
                yield from lay_out(item, inner, ",")
    yield f"{indent}{source.tail}{end}"


def _is_long(source: Source, indent: str) -> bool:
    return isinstance(source, TextSource) and len(indent) + len(_flat(source)) + 1 > WIDTH


def _flat(source: Source) -> str:
    """Return a source on one line."""
    if isinstance(source, str):
        return source
    if isinstance(source, TextSource):
        return f"{source.key}{literal(source.text)}"
    return f"{source.head}{', '.join(map(_flat, source.items))}{source.tail}"


def _pieces(source: TextSource, indent: str, end: str) -> Iterator[str]:
    """Yield a text that is too long for a line as strings of several lines."""
    lines: list[str] = []
    piece: list[Part] = []
    for part in _words(source.text):
        room = WIDTH - len(indent) - len(end) - (0 if lines else len(source.key))
        if piece and len(literal([*piece, part])) > room:
            lines.append(literal(piece))
            piece = []
        if piece and isinstance(part, str) and isinstance(last := piece[-1], str):
            piece[-1] = last + part
        else:
            piece.append(part)
    lines.append(
        literal(piece) if len(piece) > 1 or isinstance(piece[0], str) else literal(["", *piece])
    )
    lines[0] = source.key + lines[0]
    lines[-1] += end
    yield from (indent + line for line in lines)


def _words(text: Text) -> Iterator[Part]:
    """Yield the words of a text with the blanks behind them, and parts of long ones. An escape of a pattern stays whole."""
    for part in text:
        if isinstance(part, Name):
            yield part
        else:
            yield from re.findall(r"(?:\\.|[^\\\s]){1,40}\s?|\s+|\\", part, re.DOTALL)
