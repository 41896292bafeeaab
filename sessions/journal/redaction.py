"""Keeping secrets out of written texts: by the names of values, and by their form.

It is for the journal, which people and models read. State, snapshots and receipts are stored unredacted, since they must be
returned exactly.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal, cast
from urllib.parse import quote

from .secret_names import (
    KEYS,
    NAME_FIELDS,
    REDACTED,
    SHORT_NAMES,
    assignments,
    flags,
    name_marks,
    name_words,
    names_secret,
    pairs,
    plain_name,
    short_assignments,
    signed_backwards,
)
from .secret_texts import LEAST, MAX_LEVELS, MAX_MEMBERS, SLACK, SecretTexts, code_forms, hide_forms

_REDACTED: Final = rf"\g<head>{REDACTED}"
MAX_CHARACTERS: Final = 4 * 65_536
"""Characters of the longest text that is searched for secrets; a longer one is left out. An expression on it takes a second
at most, during which no other thread of Python runs."""
KEY_LENGTH: Final = 128
SHORTEST: Final = 8
"""Characters of the shortest text with room for a secret and for the sign of one."""

_USER_FLAG: Final = re.compile(
    r"(?P<head>(?<!\S)(?:-u|--user|--proxy-user)(?:\s{1,4}|=)[\"']?[^\s:/\"']{1,128}:)(?!\d{1,9}(?!\S))[^\s\"']+"
)
"""The password of `curl -u user:password`; `docker run -u 1000:1000` has none."""
_USER_FLAG_SIGN: Final = re.compile(r"-u(?:ser)?[\s=]")
"""Occurs in every text in which _USER_FLAG matches, and is found quickly."""
_USER_FLAGS: Final = frozenset({"-u", "--user", "--proxy-user"})

_SCHEME: Final = re.compile(
    r"(?P<head>\b(?i:bearer|basic)\s{1,4})(?:(?=[^\s\"']{0,200}\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})"
)
"""Credentials of HTTP: a scheme and the value after it."""
_ADDRESS: Final = re.compile(r"(?P<head>(?<=://)[^\s/@:\"']{0,256}:)[^\s/@\"']{1,1024}(?=@)")
"""The password in an address."""
_PEM: Final = re.compile(
    r"(?P<head>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)[\s\S]*?(?:(?=-----END )|\Z)"
)
_KEY: Final = re.compile(
    r"(?P<head>)(?:(?<![\w-])(?=[\w-]{9,}+\.[\w-]{4})(?:[\w-]*-)?eyJ[\w-]{6,}+\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|\b(?:sk|pk|rk)[-_](?=[a-zA-Z_-]{0,200}+\d)[\w-]{14,}"
    r"|\b(?:gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|npm_|pypi-|hf_|dop_v1_|shpat_|SG\.|ya29\.|AIza)[\w.-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b)"
)
"""JSON Web Tokens, and keys with a prefix that names their issuer."""
_BEGINNINGS: Final = {
    "-": ("sk-", "pk-", "rk-", "glpat-", "xox", "pypi-"),
    "_": (
        *("sk_", "pk_", "rk_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_"),
        *("npm_", "hf_", "dop_v1_", "shpat_"),
    ),
    ".": ("eyJ", "SG.", "ya29."),
    "A": ("AIza", "AKIA", "ASIA"),
}
"""Beginnings of keys, by a character that each of them contains. A search for one character is much cheaper."""

LONG: Final = 32
_LONG: Final = re.compile(rf"(?<![\w./+-])[\w-]{{{LONG},}}+(?![\w/+])")
_RUNS: Final = bytes(
    97 if chr(i).isalnum() or chr(i) in "_-." or i > 127 else 32 for i in range(256)
)
"""Maps characters of words and keys to one letter, and all others to blanks, so that long runs are found quickly."""
_KEY_RUN: Final = b"a" * 14
_LONG_RUN: Final = b"a" * LONG
_MIXED: Final = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_DIGITS: Final = "0123456789"


_Part = Literal["", "some", "all"]
"""How much of a name is the name of a secret."""


class Redactor:
    """Replaces secrets in values, their names, and texts. It may be used from any thread."""

    def __init__(
        self,
        keys: Iterable[str] = KEYS,
        patterns: Iterable[str] = (),
        secrets: Iterable[str] = (),
    ) -> None:
        """`patterns` are regular expressions of more secrets; their matches are replaced. `secrets` are secret texts.

        Raises:
            re.error: a pattern is not a regular expression.
        """
        key_names = sorted({key.lower() for key in keys if key})
        names = {plain_name(key) for key in key_names}
        joined_names = {"".join(name_words(key)) for key in key_names}
        longest = max(map(len, joined_names), default=0)

        @lru_cache(maxsize=4096)
        def classify_name(key: str) -> tuple[str, _Part]:
            """Return a name as it is shown, and how much of it names a secret."""
            if plain_name(key) in names:
                return self._clean(key), "all"
            return self._clean(key), "some" if names_secret(
                name_words(key), joined_names, longest
            ) else ""

        self._classify_name = classify_name
        self._patterns = [re.compile(pattern) for pattern in patterns]
        long_names = [name for name in key_names if name not in SHORT_NAMES]
        short_names = [name for name in key_names if name in SHORT_NAMES]
        self._marks = name_marks(key_names)
        self._sign_pattern = signed_backwards(long_names, short_names)
        self._assignment_pattern = assignments(long_names)
        self._short_pattern = short_assignments(short_names)
        self._flag_pattern = flags(key_names)
        self._pair_pattern = pairs(key_names)
        forms = {form for text in secrets if len(text) >= LEAST for form in _spellings(text)}
        self._secrets = sorted(forms)

    def names_secret(self, name: str) -> bool:
        """Return whether the name of a member may tell that its value is secret."""
        return len(name) > KEY_LENGTH or self._classify_name(name) != (name, "")

    def value(
        self,
        value: object,
        limit: int | None = None,
        levels: int = MAX_LEVELS,
        room: float = math.inf,
        secrets: SecretTexts | None = None,
    ) -> object:
        """Return a copy of a JSON value without secrets, `secrets` among them.

        A text longer than `limit` is cut, and its length is added. Values nested deeper than `levels` become "...".
        Members behind the first `room` characters are left out without being read.
        """
        classify_name = self._classify_name

        def show(text: str) -> str:
            return self.text_without(secrets, text, limit) if secrets else self.text(text, limit)

        def walk(item: object, levels: int) -> object:
            nonlocal room
            if not isinstance(item, dict | list):
                redacted = show(item) if isinstance(item, str) else item
                room -= len(redacted) + 1 if isinstance(redacted, str) else 1
                return redacted
            if levels == 0:
                return "..."
            if isinstance(item, list):
                items = itertools.takewhile(lambda _: room > 0, cast("list[object]", item))
                return self._redact_flags([walk(member, levels - 1) for member in items])
            members: dict[object, object] = {}
            is_pair = "value" in item and self._names_secret(cast("dict[object, object]", item))
            for key, member in cast("dict[object, object]", item).items():
                if room <= 0:
                    break
                if not isinstance(key, str):
                    room -= 1
                    members[key] = walk(member, levels - 1)
                    continue
                room -= len(key)
                shown_key, part = (
                    classify_name(key) if len(key) <= KEY_LENGTH else (self.text(key, limit), "")
                )
                if shown_key != key and shown_key in members:
                    shown_key = f"{shown_key} {len(members) + 1}"
                # Under a name such as `has_password`, a boolean reveals nothing.
                is_secret = part == "all" or (
                    part and member is not None and not isinstance(member, bool)
                )
                is_secret = is_secret or (is_pair and key == "value")
                members[shown_key] = REDACTED if is_secret else walk(member, levels - 1)
            return members

        return walk(value, levels)

    def secret_texts(
        self, value: object, *, levels: int = MAX_LEVELS, room: int = MAX_MEMBERS
    ) -> list[str] | None:
        """Return the texts that value() replaces because of their names; None if there are more than `room` members."""
        texts: list[str] = []

        def walk(item: object, levels: int, is_secret: bool) -> None:
            nonlocal room
            room -= 1
            if isinstance(item, str) and is_secret:
                texts.append(item)
            if levels == 0 or room < 0:
                return
            if isinstance(item, list):
                for member in itertools.takewhile(lambda _: room >= 0, cast("list[object]", item)):
                    walk(member, levels - 1, is_secret)
            elif isinstance(item, dict):
                pairs = cast("dict[object, object]", item).items()
                is_pair = "value" in item and self._names_secret(cast("dict[object, object]", item))
                for key, member in itertools.takewhile(lambda _: room >= 0, pairs):
                    names_secret = (
                        isinstance(key, str)
                        and len(key) <= KEY_LENGTH
                        and self._classify_name(key)[1]
                    )
                    names_secret = names_secret or (is_pair and key == "value")
                    walk(member, levels - 1, is_secret or bool(names_secret))

        walk(value, levels, is_secret=False)
        return texts if room >= 0 else None

    def _names_secret(self, item: dict[object, object]) -> bool:
        """Whether an object is of the form `{"name": "password", "value": ...}`."""
        for field in NAME_FIELDS:
            name = item.get(field)
            if isinstance(name, str) and len(name) <= KEY_LENGTH and self._classify_name(name)[1]:
                return True
        return False

    def _redact_flags(self, items: list[object]) -> list[object]:
        """Replace the argument after a flag such as `--password` in a list of arguments, in place."""
        previous: object = None
        for index, item in enumerate(items):
            if isinstance(previous, str) and previous.startswith("-") and isinstance(item, str):
                if previous in _USER_FLAGS:
                    items[index] = _USER_FLAG.sub(_REDACTED, f"-u {item}")[3:]
                elif not item.startswith("-") and len(previous) <= KEY_LENGTH:
                    items[index] = (
                        REDACTED if self._classify_name(previous.lstrip("-"))[1] else item
                    )
            previous = item
        return items

    def text(self, text: str, limit: int | None = None) -> str:
        """Return a text without secrets. A text longer than `limit` is cut, and its length is added."""
        if limit is None or len(text) <= limit:
            return self._clean(text)
        return f"{self.beginning(text, limit)}... ({len(text)} characters)"

    def prose(self, text: str) -> str:
        """Return a text that a person or a model wrote, without known secrets and those that their form shows.

        In prose `token: abc` is no assignment, so names of secrets do not matter.
        """
        return self._clean(text, names=False)

    def without_known(self, text: str, mask: str = REDACTED) -> str:
        """Return a text, however long, without the secrets that this redactor was given; names and forms do not matter."""
        return hide_forms(text, self._secrets, mask)

    def text_without(self, secrets: SecretTexts, text: str, limit: int | None = None) -> str:
        """Return a text as text() does, also without `secrets`. In time it is bounded by `limit`."""
        if limit is None or len(text) <= limit:
            return self.text(secrets.hide(text), limit)
        beginning = secrets.hide(text[: limit + SLACK], was_cut=True)
        return f"{self.beginning(beginning, limit)}... ({len(text)} characters)"

    def beginning(self, text: str, limit: int) -> str:
        """Return the beginning of a text, without secrets."""
        return self._clean(text[: limit + SLACK])[:limit]

    def _clean(self, text: str, *, names: bool = True) -> str:
        if len(text) > MAX_CHARACTERS:
            return f"{REDACTED} ({len(text)} characters)"
        if self._secrets:
            text = self.without_known(text)
        if len(text) < SHORTEST:
            return text
        lower = text.lower()
        # Before each expression, look for a text that all its matches contain: the expression takes a hundred times as long.
        if "PRIVATE KEY" in text:
            text = _PEM.sub(_REDACTED, text)
        if "bearer" in lower or "basic" in lower:
            text = _SCHEME.sub(_REDACTED, text)
        if "@" in text and "://" in text:
            text = _ADDRESS.sub(_REDACTED, text)
        runs = text.encode(errors="surrogatepass").translate(_RUNS)
        if _KEY_RUN in runs and _may_have_a_key(text):
            text = _KEY.sub(_REDACTED, text)
        if names:
            text = self._clean_named(text, lower)
        if _LONG_RUN in runs and _may_be_mixed(text, lower):
            text = _LONG.sub(_redact_if_mixed, text)
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def _clean_named(self, text: str, lower: str) -> str:
        """Return a text without the values of named secrets: in assignments, pairs, and arguments of commands."""
        if ":" in text or "=" in text:
            if self._sign_pattern.search(lower[::-1]):
                text = self._assignment_pattern.sub(_REDACTED, text)
                text = self._short_pattern.sub(_REDACTED, text)
            if ('"value' in text or "'value" in text) and any(map(lower.__contains__, self._marks)):
                text = self._pair_pattern.sub(_REDACTED, text)
        if "--" in text:
            text = self._flag_pattern.sub(_REDACTED, text)
        if "-u" in text and ":" in text and _USER_FLAG_SIGN.search(text):
            text = _USER_FLAG.sub(_REDACTED, text)
        return text


def _spellings(text: str) -> Iterator[str]:
    yield from code_forms(text)
    yield quote(text, safe="", errors="replace")


def _may_have_a_key(text: str) -> bool:
    return any(
        sign in text and any(map(text.__contains__, beginnings))
        for sign, beginnings in _BEGINNINGS.items()
    )


def _may_be_mixed(text: str, lower: str) -> bool:
    return text not in (lower, text.upper()) and any(map(text.__contains__, _DIGITS))


def _redact_if_mixed(match: re.Match[str]) -> str:
    """Replace a long word that has capitals, small letters and digits; no word, number or name looks like that."""
    return REDACTED if all(kind.search(match[0]) for kind in _MIXED) else match[0]
