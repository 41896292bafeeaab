"""Foreign texts inside lines and beside sentences of ours, and counts in texts. Imports little, for quick commands."""

from __future__ import annotations

import re
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun; `several` is the noun's plural if that does not end in s."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"


_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, line separators, marks that reorder text, invisible letters, and half surrogate pairs."""

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Controls, overrides of the direction and invisible tags: a person sees another text than a model reads."""

_BLANKS: Final = "\n\t\u00a0\u202f\u3000"

_FOLDERS: Final = re.compile(r"(?<![\w:/.~])~?/(?:[^/\s:;,'\"]+/)*(?=[^/\s:;,'\"])")
"""Matches the folders of an absolute path. The path of a URL has its host before it."""

_LOOKALIKES: Final = re.compile(
    "[\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b3\u03b9\u03ba\u03bd\u03bf"
    "\u03c1\u03c4\u03c5\u03c7\u03c9\u03f2\u03f3\u0405\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c-\u041e\u0420-\u0423\u0425"
    "\u0430\u0432\u0433\u0435\u043a\u043c-\u043f\u0440-\u0443\u0445\u044a\u044c\u0455\u0456\u0458\u04ae\u04af\u04bb\u04c0\u04cf\u0501"
    "\u050c\u051a-\u051d\u0561-\u0587\u05d5\u05d8\u05df\u05e1\u0627\u13a0-\u13ff\u2c80-\u2cff\ua4d0-\ua4ff\uab30-\uabbf]+"
)
"""Matches words of letters that look like those of ASCII: Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu and others."""
_RIGHT_TO_LEFT: Final = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_LATIN: Final = "\u00df\u00c6\u00e6\u00d8\u00f8\u0152\u0153\u00de\u00fe\u00f0\u0141\u0142"
"""Latin letters that are no letter of ASCII with a mark."""

NAME_CHARACTERS: Final = 30
_QUOTES: Final = (
    "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb"
    "\u300c\u300d\u300e\u300f\u301d\u301e\u301f\uff02\uff07\uff62\uff63"
)
_INVISIBLE: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef"
)
"""Characters that count as letters or marks and show nothing, beside those that are not printable."""
_OMITTED: Final = re.compile(f"[{_QUOTES}{_INVISIBLE}]")
_UNSEEN: Final = re.compile(f"[{_INVISIBLE}]")
MAX_MARKS: Final = 2
"""Combining marks on one letter. More of them cover the lines around it."""


def escape_controls(text: str) -> str:
    r"""Return a text with its control characters written as `\n`, `\x1b` or `\u2028`."""
    return _UNSAFE.sub(_escape, text)


def spell_out(text: str) -> str:
    r"""Return a text with each character that is not seen, or looks like another one, written as `\xa0` or `\u0430`.

    Those are letters of other alphabets in a word with letters of ASCII, or whose letters all look like those; signs
    in a word with letters or digits of ASCII; and other forms of the characters of ASCII. Letters that are written from
    right to left are written so where they put digits or quoted texts after them into another order.
    """
    line = " ".join(
        word if word.isascii() and word.isprintable() else _spell_word(word)
        for word in text.split(" ")
    )
    first = _RIGHT_TO_LEFT.search(line)
    rest = line[first.start() :] if first else ""
    if re.search("[0-9]", rest) or _RIGHT_TO_LEFT.search(rest.partition('"')[2]):
        return _RIGHT_TO_LEFT.sub(lambda letter: ascii(letter[0])[1:-1], line)
    return line


def _spell_word(word: str) -> str:
    foreign = "".join(char for char in word if char.isalpha() and not _is_distinct(char))
    has_letters = any(char.isascii() and char.isalpha() for char in word)
    is_mixed = has_letters or any(char.isascii() and char.isdecimal() for char in word)
    is_like_ascii = has_letters or _LOOKALIKES.fullmatch(foreign) is not None
    spelled: list[str] = []
    marks = 0
    for char in word:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        is_odd = is_like_ascii if char.isalpha() else is_mixed
        is_plain = char.isascii() or _is_distinct(char) or not (is_odd or _is_ambiguous(char))
        is_seen = char.isprintable() and not _UNSEEN.match(char) and marks <= MAX_MARKS
        spelled.append(char if is_plain and is_seen else ascii(char)[1:-1])
    return "".join(spelled)


def _is_distinct(char: str) -> bool:
    """Whether a character is a Latin letter that no one of ASCII looks like, or as wide as those of East Asia."""
    if unicodedata.east_asian_width(char) == "W":
        return True
    base = unicodedata.normalize("NFD", char)[0]
    return char.isalpha() and (base.isascii() or char in _LATIN)


def _is_ambiguous(char: str) -> bool:
    """Whether a character is another form of ones of ASCII, or a digit of another script."""
    return unicodedata.normalize("NFKC", char).isascii() or char.isdecimal()


def one_line(text: str) -> str:
    """Return a text as one line: a blank for each line break, other control characters written out."""
    return escape_controls(" ".join(text.split())) if not text.isprintable() else text


def cut_line(text: str, most: int) -> str:
    """Return a text as one line, cut after `most` characters. Its control characters stay."""
    line = " ".join(text[: most + 1].split())
    return f"{line[:most]}..." if len(text) > most else line


def without_controls(text: str, kept: str = _BLANKS) -> str:
    """Return a text whose control characters are written out, but for those in `kept`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else _escaped(char) for char in text)


def has_hidden(text: str) -> bool:
    """Whether without_hidden() would remove something."""
    return _HIDDEN.search(text) is not None


def without_hidden(text: str) -> str:
    """Return a text for a model, without controls, overrides of the direction and invisible tags."""
    return _HIDDEN.sub("", text)


def escape_hidden(text: str) -> str:
    """Return a text for a person, in which what without_hidden() removes is written out."""
    return _HIDDEN.sub(_escape, text)


def plain_name(text: str, most: int = NAME_CHARACTERS) -> str:
    """Return a name that a stranger has chosen for people to read, in at most `most` characters.

    It has no quotes, with which it could leave its place in a sentence, nothing invisible, and no marks that reorder text.
    """
    characters: list[str] = []
    marks = 0
    for character in _OMITTED.sub("", " ".join(unicodedata.normalize("NFC", text).split())):
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if character.isprintable() and marks <= MAX_MARKS:
            characters.append(character)
    name = " ".join("".join(characters).split())
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def without_folders(text: str) -> str:
    """Return a text in which each absolute path has become its last part: callers need not know the folders of a machine.

    Of a folder whose name has a blank, the part after the blank stays. Where a path is at hand, use its name instead.
    """
    return _FOLDERS.sub("", text)


def _escape(match: re.Match[str]) -> str:
    return _escaped(match[0])


def _escaped(character: str) -> str:
    return repr(character)[1:-1]
