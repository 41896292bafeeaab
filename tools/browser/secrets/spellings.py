"""The spellings of secret values in URLs, JSON, code, HTML and YAML, and the logins in addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from html.entities import codepoint2name
from typing import Final

_PLAIN: Final = re.compile("[A-Za-z0-9]+")
"""Matches letters and digits that are spelled in one way only."""
_ONE_KEY: Final = re.compile("[a-z0-9]+")
"""Matches characters that are typed without another key."""
_KEYS: Final = "(?:Shift|AltGraph|CapsLock|Control|Alt|Meta|Dead){0,4}"
LONGEST_WITH_KEYS: Final = 64
_PERCENT: Final = "%(?:25){0,4}"
"""Matches the sign before the digits of a byte in an address, also if the address is a part of another one."""
_BLANK_CODES: Final = "9|10|13|32|160|[xX](?:9|[aAdD]|20|[aA]0)"
_BLANKS: Final = (
    rf"(?:\s|\+|{_PERCENT}(?:2[0bB]|0[9aAdD]|[cC]2{_PERCENT}[aA]0)|\\{{1,16}}[nrt]|&nbsp;"
    rf"|&#(?:{_BLANK_CODES});)+"
)
_ESCAPE: Final = rf"(?:\\|{_PERCENT}5[cC])"
"""Matches a backslash, also in an address: JSON may stand there."""
_SIGNS: Final = re.compile(r"\\+|[^\\]")
_ENTITIES: Final = codepoint2name | {39: "apos"}


class Spellings:
    """Values, each with its replacement. All are replaced in one pass: a replacement is never searched again."""

    def __init__(
        self, replacements: Mapping[str, str], *, are_typed: bool = False, is_word: bool = False
    ) -> None:
        """`are_typed`: a page may have noted the names of keys between the characters, such as Shift, and letters in the
        other case.

        `is_word`: letters beside a value make it another word.
        """
        self._values = sorted(replacements, key=len, reverse=True)
        self._replacements = [replacements[value] for value in self._values]
        self._are_typed = are_typed
        self._is_word = is_word
        plain = _ONE_KEY if are_typed else _PLAIN
        self._plain_parts = [
            max(plain.findall(value), key=len, default="") for value in self._values
        ]
        """A part of each value that is spelled in one way only, to find quickly that a text has none."""
        self._plain_bytes = [part.encode() for part in self._plain_parts]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._expression, re.IGNORECASE if self._are_typed else 0)

    @cached_property
    def _bytes_pattern(self) -> re.Pattern[bytes]:
        # The signs of a pattern are those of ASCII, so its bytes are the pattern of the bytes.
        return re.compile(self._expression.encode(), re.IGNORECASE if self._are_typed else 0)

    @property
    def _expression(self) -> str:
        expressions = (
            f"({_any_spelling(value, _KEYS if self._are_typed and len(value) <= LONGEST_WITH_KEYS else '')})"
            for value in self._values
        )
        expression = "|".join(expressions) or "(?!)"
        return f"(?<![A-Za-z])(?:{expression})(?![A-Za-z])" if self._is_word else expression

    def may_be_in(self, text: str) -> bool:
        """Return whether a value may be in a text, which is in lower case if `are_typed`."""
        return any(part in text for part in self._plain_parts)

    def may_be_in_bytes(self, data: bytes) -> bool:
        return any(part in data for part in self._plain_bytes)

    def replace(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._replacement_of(match), text)

    def replace_bytes(self, data: bytes) -> bytes:
        return self._bytes_pattern.sub(lambda match: self._replacement_of(match).encode(), data)

    def _replacement_of(self, match: re.Match[str] | re.Match[bytes]) -> str:
        assert match.lastindex is not None
        return self._replacements[match.lastindex - 1]


def _any_spelling(value: str, between: str) -> str:
    """Return an expression for a value as pages, URLs, JSON, code, HTML and YAML write it, also with single blanks.

    `between` matches what may stand between two characters.
    """
    words = (between.join(map(_spelling_of, _SIGNS.findall(word))) for word in value.split())
    return f"{between}{_BLANKS}{between}".join(words)


def _spelling_of(sign: str) -> str:
    if _PLAIN.fullmatch(sign):
        return sign
    if sign.startswith("\\"):
        # As one: each by itself could match any part of the run.
        return rf"{_ESCAPE}{{{len(sign)},{16 * len(sign)}}}"
    code, units = ord(sign), sign.encode("utf-16-be").hex()
    in_address = "".join(f"{_PERCENT}{_hex(f'{byte:02x}')}" for byte in sign.encode())
    spellings = [
        rf"{_ESCAPE}{{0,16}}(?:{re.escape(sign)}|{in_address})",
        "".join(rf"{_ESCAPE}{{1,16}}u{_hex(units[at : at + 4])}" for at in range(0, len(units), 4)),
        rf"{_ESCAPE}{{1,16}}U{_hex(f'{code:08x}')}",
        f"&#0*{code};",
        f"&#[xX]0*{_hex(f'{code:x}')};",
    ]
    if code < 256:
        spellings += [f"{_PERCENT}{_hex(f'{code:02x}')}", rf"\\{{1,16}}x{_hex(f'{code:02x}')}"]
    if name := _ENTITIES.get(code):
        spellings.append(f"&{name};")
    if sign == "'":
        # As YAML writes it between two of them.
        spellings.insert(0, "''")
    return f"(?:{'|'.join(spellings)})"


def loose_expression(value: str) -> str:
    """Return an expression for a value in which browsers and systems have replaced signs that names of files do not have."""
    return "".join(re.escape(sign) if sign.isalnum() else "." for sign in value.strip())


def _hex(digits: str) -> str:
    """Return an expression for hexadecimal digits in either case."""
    return "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in digits)


MASK: Final = "••••••"
LOGIN: Final = "[login]"
"""The text in place of a value of a login that is lent."""
LOGIN_HEADER: Final = re.compile(
    r"authorization$|(^|-)auth(entication)?(-|$)|key(-|$)|token|secret|password|session|credential|jwt"
    r"|^sec-websocket-protocol$"
)
"""Matches the names of headers that log in, besides those of cookies."""
TOKEN: Final = 17
"""The characters of a user name without a password from which it counts as a token."""

# A quote belongs to a password unless the text that quotes the address goes on after it.
_LOGIN: Final = re.compile(
    r"""(?<=://)(?:(?P<user>[^\s/:@?#]*:)(?:[^\s/?#"'<>]|["'](?![],;:)}]))+"""
    rf"""|[^\s/:@?#"'<>]{{{TOKEN},}})(?=@)"""
)


def mask_logins(text: str) -> str:
    """Return a text in which the passwords of addresses, and tokens in place of user names, are masked."""
    if "@" not in text or "://" not in text:
        return text
    return _LOGIN.sub(lambda match: f"{match['user'] or ''}{MASK}", text)


def without_value_of_login(name: str, value: str) -> str:
    """Return the value of a header of a site whose login is lent; of one that logs in, nothing."""
    is_cookie = name.lower() in ("cookie", "set-cookie")
    return LOGIN if is_cookie or LOGIN_HEADER.search(name.lower()) else value
