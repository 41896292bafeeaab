"""Secrets that the configuration names: a caller types `%NAME%`, pages get the value, and results show the name again.

A weak secret, whose value is found by trying, is put into fields only and not masked elsewhere: a page with all six-digit
numbers would show by the place of `%CODE%` which one it is.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ....sessions.owned_map import BoundedMap
from ..devtools.world import origin_of
from ..errors import BrowserToolFailed
from .spellings import LOGIN, Spellings, loose_expression
from .typed_texts import TypedTexts

SHORTEST: Final = 4
"""The shortest value in characters; a shorter one is no secret."""
STRONG_BITS: Final = 40.0
"""The logarithm of the number of values like it from which a value is strong. A result holds some 2**18 values."""
DIGIT_BITS: Final = math.log2(10)
LETTER_BITS: Final = math.log2(26)
SIGN_BITS: Final = 1.0
"""Less than there are signs: mostly they separate groups."""
MAX_LENT: Final = 300
"""Values of lent logins that are masked. Beyond them, the one that was lent longest ago is shown."""
LONGEST_VALUE: Final = 4000
"""Characters of a value, as addresses spell it, that is masked at the place where a text is cut."""
SIMILARITY: Final = 0.8
"""How similar an unknown name must be to a configured one to count as a misspelling of it."""

_POSSIBLE_NAME: Final = re.compile(r"%(?=([A-Za-z_]\w*)%)", re.ASCII)
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""Matches a text in quotes in Python. Quotes inside of it begin no other one."""


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """One secret. It may be typed into pages of its origin only, or into all pages if it has none."""

    name: str
    value: str = field(repr=False)
    origin: str | None = None

    @property
    def is_weak(self) -> bool:
        return _bits_of(self.value) < STRONG_BITS


class NamedSecrets:
    """The named secrets of one configuration. They do not change while the process runs.

    Those of a session also mask what a person typed there.
    """

    def __init__(
        self, secrets: Sequence[NamedSecret] = (), *, omitted: Mapping[str, str] | None = None
    ) -> None:
        """`omitted`: by name, why secrets were left out. Their names are refused."""
        self.omitted: Mapping[str, str] = omitted or {}
        self._secrets: dict[str, dict[str | None, str]] = {}
        """The values by name and by the origin that they are for."""
        self._weak_names = {secret.name for secret in secrets if secret.is_weak}
        self._masked_values: list[str] = []
        names_by_value: dict[str, str] = {}
        self._literals: dict[str, str] = {}
        """The code that reads a value, by the texts in quotes in its place."""
        for secret in secrets:
            self._secrets.setdefault(secret.name, {})[secret.origin] = secret.value
            texts = [f"%{secret.name}%"]
            if not secret.is_weak:
                texts.append(secret.value)
                self._masked_values.append(secret.value)
                names_by_value.setdefault(secret.value.strip(), f"%{secret.name}%")
            for text in texts:
                for literal in (repr(text), json.dumps(text, ensure_ascii=False)):
                    self._literals.setdefault(literal, f'os.environ["{secret.name}"]')
        # Without names it matches nothing.
        names = "|".join(map(re.escape, self._secrets)) or "(?!)"
        self._reference = re.compile(f"%({names})%")
        self._spellings = Spellings(names_by_value)
        self._names_in_files = [
            (re.compile(loose_expression(secret.value), re.IGNORECASE), f"%{secret.name}%")
            for secret in secrets
            if not secret.is_weak
        ]

        self.typed = TypedTexts()
        """The texts that a person typed, if these are the secrets of a session."""
        self._lent = BoundedMap[str, Spellings](MAX_LENT)
        """The values of logins that the session has or had."""

    def for_session(self) -> NamedSecrets:
        """Return the same secrets, with texts of a person of their own."""
        own = copy.copy(self)
        own.typed = TypedTexts()
        own._lent = BoundedMap[str, Spellings](MAX_LENT)
        return own

    def hide(self, text: str) -> None:
        """Mask a value of a login wherever it stands, from now on."""
        self._lent[text] = self._lent.get(text) or Spellings({text: LOGIN})

    def extend(self, earlier: NamedSecrets) -> None:
        """Mask also what was typed and lent on an earlier connection of the session."""
        self.typed.extend(earlier.typed)
        for text in earlier._lent:
            self.hide(text)

    @property
    def is_used(self) -> bool:
        """Whether they mask texts of their session."""
        return bool(self.typed or self._lent)

    def __bool__(self) -> bool:
        return bool(self._secrets or self._lent)

    def __str__(self) -> str:
        """The names as a caller types them, each with the origins that it is for."""
        return ", ".join(
            f"%{name}%{_in_brackets(filter(None, values))}"
            for name, values in self._secrets.items()
        )

    @property
    def masked_values(self) -> Sequence[str]:
        """The values that are masked wherever they stand: those of logins, and of all secrets but weak ones."""
        return [*self._masked_values, *self._lent]

    def weak_names(self, text: str) -> list[str]:
        """Return the names of weak secrets in a text, as a caller types them."""
        names = dict.fromkeys(self._reference.findall(text)) if self.may_be_in(text) else ()
        return [f"%{name}%" for name in names if name in self._weak_names]

    def may_be_in(self, text: str) -> bool:
        """Return whether insert() may find a name in a text."""
        return bool(self._secrets or self.omitted) and "%" in text

    def insert(self, text: str, url: str, *, is_typed: bool = False) -> str:
        """Return a text with the values of the names in it, for the page at an address. `is_typed`: it goes into a field.

        Raises:
            BrowserToolFailed: A secret is not for that origin, its name is wrong or missing, or a weak secret is not typed.
        """
        if not self.may_be_in(text):
            return text
        origin = origin_of(url)
        for name in _POSSIBLE_NAME.findall(text):
            if name in self.omitted and name not in self._secrets:
                raise BrowserToolFailed(
                    f"%{name}% was left out ({self.omitted[name]}). Nothing was put in."
                )
            if name not in self._secrets:
                self._refuse_misspelled(name)
        inserted = self._reference.sub(lambda match: self._value(match[1], origin), text)
        if not is_typed and (weak_names := self.weak_names(text)):
            raise BrowserToolFailed(
                f"{' and '.join(weak_names)} can be put into fields and prompts only: the value is so easy to guess that "
                "results do not hide it. Nothing was put in."
            )
        return inserted

    def _value(self, name: str, origin: str | None) -> str:
        values = self._secrets[name]
        if None in values:
            return values[None]
        if origin is None or origin not in values:
            where = f"this one is of {origin}" if origin else "this one is of no site"
            raise BrowserToolFailed(
                f"%{name}% is only for pages of {' and '.join(filter(None, values))}; {where}. Nothing was put in."
            )
        return values[origin]

    def _refuse_misspelled(self, name: str) -> None:
        import difflib  # here because only a wrong name needs it

        known_names = {known.upper(): known for known in self._secrets}
        matches = difflib.get_close_matches(name.upper(), known_names, n=1, cutoff=SIMILARITY)
        if matches:
            raise BrowserToolFailed(
                f"There is no secret %{name}%; did you mean %{known_names[matches[0]]}%? Nothing was put in."
            )

    def consists_of_names(self, text: str) -> bool:
        """Return whether a text, as the caller wrote it, has names of secrets and nothing else."""
        return bool(self._secrets and text) and not self._reference.sub("", text)

    def mask(self, text: str) -> str:
        """Return a text in which each value that is not weak is replaced by its name, also as URLs and quotes spell it.

        Texts that a person typed are masked.
        """
        if self._spellings.may_be_in(text):
            text = self._spellings.replace(text)
        return self.typed.mask(self.mask_lent(text))

    def mask_lent(self, text: str) -> str:
        """Return a text in which the values of logins are replaced."""
        for lent in list(self._lent.values()):
            if lent.may_be_in(text):
                text = lent.replace(text)
        return text

    def cut(self, text: str, most: int) -> str:
        """Return the beginning of a text, of at most `most` characters; masked if it is cut, as a cut value is not found."""
        if len(text) <= most:
            return text
        masked = self.mask(text[: most + LONGEST_VALUE])
        # Behind the mask of a long value, the part of one at the end may have moved before the place of the cut.
        end = most if len(text) <= most + LONGEST_VALUE else len(masked) - LONGEST_VALUE
        return masked[: max(0, min(most, end))]

    def mask_name(self, name: str) -> str:
        """Return the name of a file in which each value is replaced as in mask(), also where its signs became others."""
        for value, reference in self._names_in_files:
            name = value.sub(reference, name)
        return self.mask(self.typed.mask_name(name))

    def mask_code(self, code: str) -> str:
        """Return Python that reads values from the environment; where one is only part of a text, it is masked."""
        if self._secrets:
            code = _QUOTED.sub(lambda match: self._literals.get(match[0], match[0]), code)
        return self.mask(code)

    def mask_bytes(self, data: bytes) -> bytes:
        """Return the bytes of a text in which each value is replaced as in mask()."""
        if self._spellings.may_be_in_bytes(data):
            data = self._spellings.replace_bytes(data)
        for lent in list(self._lent.values()):
            if lent.may_be_in_bytes(data):
                data = lent.replace_bytes(data)
        return self.typed.mask_bytes(data)

    def mask_file(self, data: bytes) -> bytes:
        """Return the content of a file: as mask_bytes() does if it is text in UTF-8, else unchanged."""
        try:
            if self or self.typed:
                data.decode()
        except UnicodeDecodeError:
            return data
        return self.mask_bytes(data)


def _bits_of(value: str) -> float:
    """Return the logarithm of the number of values whose characters are of the same classes at the same places.

    Digits with signs between them count nothing: codes, cards and dates follow rules.
    """
    compact = "".join(value.split())
    if "".join(filter(str.isalnum, compact)).isdigit() or not compact:
        return 0.0
    bits = sum(
        DIGIT_BITS if sign.isdigit() else LETTER_BITS if sign.isalpha() else SIGN_BITS
        for sign in compact
    )
    # Few characters that repeat are few to try.
    return min(bits, len(compact) * 2 * math.log2(len(set(compact))))


def _in_brackets(origins: Iterable[str]) -> str:
    text = ", ".join(origins)
    return f" ({text})" if text else ""
