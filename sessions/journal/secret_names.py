"""The names of secrets, and the expressions that find a name with its value in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

REDACTED: Final = "[redacted]"

KEYS: Final = frozenset(
    {
        "password",
        "passwd",
        "secret",
        "token",
        "access_token",
        "refresh_token",
        "api_key",
        "apikey",
        "authorization",
        "cookie",
        "set-cookie",
        "private_key",
        "client_secret",
        "secret_key",
        "access_key",
        "secret_access_key",
        *("passphrase", "credential", "credentials", "jwt", "cvv", "cvc", "dsn"),
        *("pwd", "pass", "pin", "otp"),
    }
)
"""Names whose values are secret by default."""

SHORT_NAMES: Final = frozenset({"pwd", "pass", "pin", "otp"})
"""Names that are ordinary words as well: in a text, `pin: left` and `pass: 3` hold no secret, `pin=1234` does."""

_TO_THE_END = frozenset({"authorization", "proxyauthorization", "cookie", "setcookie"})
"""Names of headers whose values contain blanks."""

_WORDS: Final = re.compile(
    r"[\W_]+|(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z]|[0-9])|(?<=[0-9])(?=[A-Za-z])"
)
"""Separators between the words of a name: signs, capitals as in camelCase, and digits."""
_STILL: Final = frozenset(
    {
        *("value", "string", "raw", "plain", "plaintext", "hash", "hashed", "encoded"),
        *("base64", "data", "header", "key", "access", "confirm", "confirmation", "repeat"),
        *("again", "old", "new", "current"),
    }
)
"""Words after the name of a secret with which it stays one: `secret_key`, but not `token_count`."""
_OTHER_TOKENS: Final = frozenset(
    {
        *("page", "continuation", "next", "sync", "progress", "cancel", "cancellation", "per"),
        *("max", "min", "start", "end", "stop", "bos", "eos", "pad", "unk", "mask", "sep"),
        *("cls", "special", "first", "last"),
    }
)
"""Words before `token` that make it no secret: page tokens, and tokens of language models and their prices."""
_OTHERS: Final = {
    "token": _OTHER_TOKENS,
    "pass": frozenset({"first", "second", "single", "multi", "one", "two", "by", "all", "test"}),
    "pin": frozenset({"map", "push", "drawing"}),
}
"""By name, the words before it that give it another meaning."""
NAME_FIELDS: Final = ("name", "key", "field", "label")
"""Members that name the value in the member `value` beside them."""


def plain_name(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "")


def name_words(key: str) -> list[str]:
    return [word.lower() for word in _WORDS.split(key) if word]


def names_secret(words: Sequence[str], names: set[str], longest: int) -> bool:
    """Whether some of the words are one of `names`, and no word around them gives it another meaning."""
    for end in range(len(words), 0, -1):
        candidate = ""
        for start in range(end - 1, -1, -1):
            candidate = words[start] + candidate
            if len(candidate) > longest:
                break
            before = words[start - 1] if start else ""
            if candidate in names and before not in _OTHERS.get(candidate, ()):
                return True
        if words[end - 1] not in _STILL and not words[end - 1].isdigit():
            return False
    return False


def _parts(key: str) -> list[str]:
    return re.split("[-_]", key)


def name_marks(names: Sequence[str]) -> tuple[str, ...]:
    """Return texts of which at least one occurs in every text with a name."""
    spellings = {sign.join(_parts(name)) for name in names for sign in ("", "-", "_")}
    # A spelling that contains another one adds nothing.
    return tuple(sorted(s for s in spellings if not any(t in s for t in spellings if t != s)))


def assignments(names: Sequence[str]) -> re.Pattern[str]:
    """Return an expression for `name = value`, `name: value` and `"name": "value"`; group `head` is all but the value."""

    def words(*, whole: bool) -> str:
        return _alternatives(name for name in names if (plain_name(name) in _TO_THE_END) is whole)

    never = "(?!)"
    sign = r"\\?[\"']?\s{0,3}[:=]\s{0,3}+\\?+[\"']?+"
    begin = r"(?:(?<![a-zA-Z0-9])|(?-i:(?<=[a-z0-9])(?=[A-Z])))"
    value = r"(?:(?<=\")(?:[^\"\\]|\\.)+|(?<=')[^']+|[^\s\"',;&<>}\])]+)"
    return re.compile(
        rf"{begin}(?P<head>(?:(?P<whole>{words(whole=True) or never})|{words(whole=False) or never}){sign})"
        rf"(?!{re.escape(REDACTED)})(?(whole)[^\r\n\"']+|{value})",
        re.IGNORECASE,
    )


def signed_backwards(long: Sequence[str], short: Sequence[str]) -> re.Pattern[str]:
    """Return an expression for a name with its sign in a lowercase text that is read backwards.

    It matches wherever the expressions of the assignments match. They try every name at every character; this one tries
    the names at the signs only, which are few.
    """

    def backwards(names: Sequence[str]) -> str:
        return "|".join(
            "[-_]?".join(re.escape(part[::-1]) for part in reversed(_parts(name))) for name in names
        )

    words = backwards(long) or "(?!)"
    every = rf"(?:{words}|(?:{backwards(short) or '(?!)'})(?![a-z0-9]))"
    return re.compile(
        rf":\s{{0,3}}+(?:[\"']\\?+{every}|\\?+(?:{words}))|=\s{{0,3}}+[\"']?+\\?+{every}"
    )


def short_assignments(names: Sequence[str]) -> re.Pattern[str]:
    """Return an expression for a quoted name with its value, or `name=value`. A path is no secret: PWD is a folder."""
    words = _alternatives(names) or "(?!)"
    sign = r"(?:\\?[\"']\s{0,3}:\s{0,3}+\\?+[\"']?+|\s{0,3}=\s{0,3}+\\?+[\"']?+)(?![/~])"
    value = r"(?:(?<=\")(?:[^\"\\]|\\.)+|(?<=')[^']+|[^\s\"',;&<>}\])]+)"
    return re.compile(
        rf"(?P<head>(?<![a-zA-Z0-9])(?:{words}){sign})(?!{re.escape(REDACTED)}){value}",
        re.IGNORECASE,
    )


def flags(names: Sequence[str]) -> re.Pattern[str]:
    """Return an expression for `--name value` on a command line."""
    words = _alternatives(names) or "(?!)"
    return re.compile(
        rf"(?P<head>--(?:[a-z0-9]{{1,32}}-){{0,3}}(?:{words})\s{{1,4}}[\"']?)(?![-\[\s])[^\s\"']+",
        re.IGNORECASE,
    )


def pairs(names: Sequence[str]) -> re.Pattern[str]:
    """Return an expression for the value in a text such as `{"name": "password", "value": "..."}`."""
    words, quote = _alternatives(names) or "(?!)", r"\\?[\"']"
    field = "|".join(NAME_FIELDS)
    return re.compile(
        rf"(?P<head>{quote}(?:{field}){quote}\s{{0,3}}:\s{{0,3}}{quote}(?:[\w]{{1,32}}[-_ ])?"
        rf"(?:{words}){quote}\s{{0,3}},\s{{0,3}}"
        rf"{quote}value{quote}\s{{0,3}}:\s{{0,3}}{quote})(?!{re.escape(REDACTED)})(?:[^\"'\\]|\\[^\"'])+",
        re.IGNORECASE,
    )


def _alternatives(names: Iterable[str]) -> str:
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join("[-_]?".join(map(re.escape, _parts(name))) for name in longest_first)
