"""Keeps our notes distinguishable: a text of a server or a page that imitates one gets the name of its author.

A text imitates a note if its letters and digits have the words of one in their order, however they are spaced, marked up,
spelled or spread over several texts. The name of the author is put before each imitation.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final, cast

import orjson

NOTE: Final = "Note from Statehold"
"""The beginning of every note of ours."""
NOTICE_MEMBER: Final = "statehold_notice"
"""The member of structured content that repeats our note, for clients that show structured content only."""

MOST: Final = 200
"""Imitations in a result that are attributed one by one. Texts with more are left out."""
PIECE: Final = 1000
"""Characters that are searched at once for the place of an imitation."""
BLOCK: Final = 1 << 16
"""Characters that are read at once. Other threads run in between."""
LONGEST: Final = 256
"""Upper bound of the characters of an imitation in a skeleton."""

SHORTEST: Final = len("notefromstatehold")
"""Characters of the shortest imitation in ASCII."""

LAST_WORDS: Final = "; it last said: "
"""Separates our reason for a loss from the last words of the server, which a note of ours does not repeat."""

_LOOK_ALIKES: Final = {
    "a": "@\u0430\u03b1\u0251\u1d00\u2c81\u13aa\ua4ee4\u2c65\U00010300\u15c5",
    "b": "\u044c\u0299\u13cf\ua4d0",
    "c": "\u0441\u03f2\u1d04\u217d\u2ca5\u13df\ua4da",
    "d": "\u0501\u1d05\u0257\u0111\u13a0\u13e7\ua4d3\u00f0\u0256\u1d81\u146f",
    "e": "\u20ac\u0435\u0454\u1d07\u04bd\u0454\u03b5\u2c89\u13ac\ua4f03\u01dd\u0258\u0259\u025b\u2d39\U00010304",
    "f": "\u0493\u017f\u0192\ua730\u1e9d\u03dd\ua4dd\u0283\u1d82",
    "g": "\u0261\u0262\u13c0\ua4d6",
    "h": "\u04bb\u043d\u029c\u0570\u0127\u2c8f\u13bb\u13c2\ua4e7\u0266\u157c",
    "i": "!|\u0456\u0131\u03b9\u02691l\u04cf\u2c93\u13a5\ua4f2",
    "k": "\u03ba\u043a\u1d0b\u13e6\ua4d7",
    "l": "!|\u04cf\u03b9\u0456\u0131\u0269\u217c\u029f1i\u0142\u13de\ua4e1\ua4f2\u026d\u14aa",
    "m": "\u043c\u1d0d\u2c99\u13b7\ua4df\u0271\u1d86",
    "n": "\u043f\u03b7\u0578\u0274\u2c9b\ua4e0\u0272\u0273",
    "o": (
        "\u043e\u03bf\u0585\u1d0f\u03c3\u03b8\u04e9\u0275\u2c9f\ua4f30\u00f8"
        "\u0665\u06f5\u07c0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66"
        "\u0e50\u0ed0\u1040\u101d\u10ff\u1946\u05e1\u0647\u2d54\U00010516\U0001030f\U0001042c\U000104ea\U000118c8"
    ),
    "p": "\u0440\u03c1\u1d18\u13e2\ua4d1",
    "r": "\u0433\u0280\u1d26\u2c85\u13a1\u13d2\ua4e3\u027d\u1d89",
    "s": "$\u0455\ua731\u01bd5\uabaa\u13da\u13d5\ua4e2\u0282\u1d8a",
    "t": "\u0442\u03c4\u1d1b\u2ca77\u0167\u13a2\ua4d4\u01ad\u0288\u01ab\u16cf\u2d5c\U00010315",
    "u": "\u03c5\u057d\u1d1c",
    "v": "\u0475\u03bd\u1d20",
    "w": "\u051d\u1d21",
    "y": "\u0443\u028f\u04af",
}
"""Characters that look like a letter and that Unicode does not decompose to it."""
_CAPITALS: Final = str.maketrans(
    "\u0391\u0392\u0395\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03f9",
    "abehikmnoptyc",
)
"""The Greek capitals that look like other letters than their small ones."""
_GREEK_CAPITAL: Final = re.compile("[\u0391-\u03a9\u03f9]")
_SIGN_LETTERS: Final = "@$!|\u20ac"
"""Signs that may stand for a letter, or only separate letters; a text is read with them and without."""
_SIGN_LETTER: Final = re.compile("[@$!|\u20ac\ufe57\ufe69\ufe6b\uff01\uff04\uff20\uff5c]")
_ENCLOSED: Final = (0x1F150, 0x1F170, 0x1F1E6)
"""The first letters of alphabets in black circles, in black squares, and of regional indicators."""
_LETTERS: Final = "\\w\U0001f150-\U0001f189\U0001f1e6-\U0001f1ff"
_SIGNS: Final = re.compile(f"(?:[^{_LETTERS}]|_)+")
_OTHER_SIGNS: Final = re.compile(f"(?:[^{_LETTERS}{_SIGN_LETTERS}]|_)+")
_ASCII_SIGNS: Final = {code: None for code in range(128) if not chr(code).isalnum()}
_OTHER_ASCII_SIGNS: Final = {code: None for code in _ASCII_SIGNS if chr(code) not in _SIGN_LETTERS}


def _any_spelling(word: str) -> str:
    """Return an expression for a word whose letters may be replaced by look-alikes, with a few signs between them."""
    return f"[{_SIGN_LETTERS}]{{0,3}}".join(f"[{letter}{_alikes(letter)}]" for letter in word)


def _alikes(letter: str) -> str:
    number = string.ascii_lowercase.index(letter)
    return _LOOK_ALIKES.get(letter, "") + "".join(chr(first + number) for first in _ENCLOSED)


_WORDS: Final = re.compile(
    rf"[\w{_SIGN_LETTERS}]{{0,8}}".join(
        (
            _any_spelling("note"),
            f"(?:{_any_spelling('from')}|{_any_spelling('fro')}rn)",
            f"(?:{_any_spelling('statehold')}|{_any_spelling('statehol')}cl)",
        )
    )
)
"""The words of NOTE; a few letters between them are markup, as in `<b>Note</b> from`."""
_LETTER: Final = re.compile("[a-z]+")
_MEMBER: Final = re.compile(_any_spelling("stateholdnotice"))
_TAG: Final = re.compile("[\U000e0020-\U000e007e]")
_TAGS: Final = {0xE0000 + code: code for code in range(0x20, 0x7F)}
"""Invisible characters that models read as the ASCII behind them."""
_JSON_ESCAPES: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')


def _outline_letters() -> dict[int, str | None]:
    letters: dict[int, str | None] = dict.fromkeys(range(128))
    letters |= {code: chr(code) for code in range(128) if chr(code).isalnum()}
    for letter in string.ascii_lowercase:
        for character in (letter, letter.upper(), *_alikes(letter)):
            letters[ord(character)] = None if letter in "aeils" else letter
    return letters


_OUTLINE_LETTERS: Final = _outline_letters()
"""The letters of an outline. Look-alikes are their letter; signs, and letters that a sign may stand for, are left out."""
_ASCII_OUTLINE: Final = bytes(ord(_OUTLINE_LETTERS[code] or " ") for code in range(128)) + bytes(
    128
)
_NOT_IN_OUTLINE: Final = bytes(code for code in range(128) if _OUTLINE_LETTERS[code] is None)
_FOREIGN_LETTERS: Final = {
    chr(code): to or "" for code, to in _OUTLINE_LETTERS.items() if code > 127
}
_ASCII: Final = re.compile(r"[\x00-\x7f]+")
_NOTE_OUTLINE: Final = re.compile("not.{0,8}fro(?:m|rn).{0,8}ttho[dc]")
_MEMBER_OUTLINE: Final = "tthodnotc"


def notice_member(notice: str, *, is_first: bool = False) -> str:
    """Return our note as a member of a JSON text, behind the other members of its object unless it is the first."""
    return f'{"" if is_first else ", "}"{NOTICE_MEMBER}": {json.dumps(notice)}'


def attribute(
    texts: Sequence[str], author: str, readings: Iterable[Sequence[int]] = ()
) -> list[str]:
    """Return texts with `[author] ` before each imitation of a note.

    `readings` are the orders in which a client may show them one after the other, as indices; without any, as they stand.
    """
    if sum(map(len, texts)) < SHORTEST and all(map(str.isascii, texts)):
        return list(texts)
    readings = tuple(readings) or (range(len(texts)),)
    places: list[set[int]] = [set() for _ in texts]
    for version in _versions(texts):
        outlines = list(map(_outline, version))
        has_outline = any(
            _NOTE_OUTLINE.search("".join(map(outlines.__getitem__, reading)))
            for reading in readings
        )
        if has_outline and not _place_imitations(version, readings, places):
            return [
                f"[{author}] The text was left out: it imitates notes of Statehold." for _ in texts
            ]
    if not any(places):
        return list(texts)
    return [_mark(text, sorted(place), author) for text, place in zip(texts, places, strict=True)]


def _versions(texts: Sequence[str]) -> list[Sequence[str]]:
    """Return the texts as people see them, and as models read them; a character has the same place in both."""
    # A search in ASCII would take four times as long as the rest.
    if not all(map(str.isascii, texts)) and any(map(_TAG.search, texts)):
        return [texts, [text.translate(_TAGS) for text in texts]]
    return [texts]


def _place_imitations(
    texts: Sequence[str], readings: Sequence[Sequence[int]], places: Sequence[set[int]]
) -> bool:
    """Add the positions of imitations to those of each text. Return False if there are more than MOST."""
    for with_signs in (False, True):
        if with_signs and not any(map(_SIGN_LETTER.search, texts)):
            break
        skeletons = [_skeleton(text, with_signs=with_signs) for text in texts]
        offsets = _offsets(skeletons, readings)
        if sum(map(len, offsets)) > MOST:
            return False
        for text, found, place in zip(texts, offsets, places, strict=True):
            place.update(_positions(text, sorted(found), with_signs=with_signs))
    return True


def _offsets(skeletons: Sequence[str], readings: Iterable[Sequence[int]]) -> list[set[int]]:
    """Return for each skeleton the offsets at which an imitation begins in one of the readings."""
    offsets: list[set[int]] = [set() for _ in skeletons]
    for reading in readings:
        parts = [skeletons[index] for index in reading]
        ends = list(accumulate(map(len, parts)))
        for start in _starts("".join(parts)):
            number = bisect_right(ends, start)
            offsets[reading[number]].add(start - (ends[number - 1] if number else 0))
    return offsets


def attribute_text(text: str, author: str) -> str:
    """Return one text as attribute() does."""
    return attribute([text], author)[0]


def attribute_value(value: Any, author: str) -> Any:
    """Return a JSON value whose texts and names are attributed, and no name of which is that of our notice."""
    try:
        text = orjson.dumps(value).decode()
    except (orjson.JSONEncodeError, RecursionError):
        return _attribute_members(value, author)
    if "\\" in text:
        text = _JSON_ESCAPES.sub(" ", text)
    for (version,) in _versions([text]):
        outline = _outline(version)
        if _NOTE_OUTLINE.search(outline) or _MEMBER_OUTLINE in outline:
            return _attribute_members(value, author)
    return value


def _attribute_members(value: Any, author: str) -> Any:
    if isinstance(value, str):
        return attribute_text(value, author)
    if isinstance(value, list):
        return [_attribute_members(member, author) for member in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {
            _attribute_name(name, author): _attribute_members(member, author)
            for name, member in members
        }
    return value


def _attribute_name(name: str, author: str) -> str:
    beginning = name[:PIECE]
    is_ours = any(
        _MEMBER.fullmatch(_skeleton(beginning, with_signs=with_signs))
        for with_signs in (False, True)
    )
    return f"[{author}] {name}" if is_ours else attribute_text(name, author)


def similar(*headings: str) -> Callable[[str], bool]:
    """Return a function that finds whether a text begins with one of these headings, however it is spelled."""
    words = ("".join(_LETTER.findall(heading.lower())) for heading in headings)
    pattern = re.compile("|".join(map(_any_spelling, words)))
    return lambda text: pattern.match(_skeleton(text)) is not None


def _outline(text: str) -> str:
    """Return few letters of a text, found quickly; each imitation in the text has the outline of a note."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        if _GREEK_CAPITAL.search(text):
            text = text.translate(_CAPITALS)
        text = text.casefold()
        for character in set(_ASCII.sub("", text)) & _FOREIGN_LETTERS.keys():
            text = text.replace(character, _FOREIGN_LETTERS[character])
    return text.encode("ascii", "ignore").translate(_ASCII_OUTLINE, _NOT_IN_OUTLINE).decode("ascii")


def _skeleton(text: str, *, with_signs: bool = False) -> str:
    """Return the letters and digits of a text in lower case, without marks, signs, blanks and format characters.

    `with_signs`: signs that look like a letter are kept.
    """
    if len(text) <= BLOCK:
        return _skeleton_of_block(text, with_signs)
    blocks = (text[start : start + BLOCK] for start in range(0, len(text), BLOCK))
    return "".join(_skeleton_of_block(block, with_signs) for block in blocks)


def _skeleton_of_block(text: str, with_signs: bool) -> str:
    if text.isascii():
        return text.lower().translate(_OTHER_ASCII_SIGNS if with_signs else _ASCII_SIGNS)
    text = unicodedata.normalize("NFKD", text)
    if _GREEK_CAPITAL.search(text):
        text = text.translate(_CAPITALS)
    return (_OTHER_SIGNS if with_signs else _SIGNS).sub("", text.casefold())


def _starts(skeleton: str) -> list[int]:
    starts: list[int] = []
    start = 0
    while start < len(skeleton) and len(starts) <= MOST:
        end = start + BLOCK
        for match in _WORDS.finditer(skeleton, start, end + LONGEST):
            if match.start() >= end:
                break
            starts.append(match.start())
        start = end
    return starts


def _positions(text: str, offsets: Sequence[int], *, with_signs: bool) -> Iterator[int]:
    """Yield the positions of the characters with these offsets in the skeleton of a text."""
    if not offsets:
        return
    skeleton = partial(_skeleton, with_signs=with_signs)
    ends = list(accumulate(len(skeleton(piece)) for piece in _pieces(text)))
    for offset in offsets:
        index = bisect_right(ends, offset)
        yield _position(text, index * PIECE, offset - (ends[index - 1] if index else 0), skeleton)


def _mark(text: str, places: Sequence[int], author: str) -> str:
    """Put the author before the characters at these positions of a text."""
    bounds = [0, *places, len(text)]
    return f"[{author}] ".join(text[start:end] for start, end in pairwise(bounds))


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _position(text: str, start: int, offset: int, skeleton: Callable[[str], str]) -> int:
    """Return the position of the character, at or after `start`, that has this offset in the skeleton from there."""
    low, high = 0, min(PIECE, len(text) - start) - 1
    while low < high:
        middle = (low + high) // 2
        if len(skeleton(text[start : start + middle + 1])) > offset:
            high = middle
        else:
            low = middle + 1
    return start + low
