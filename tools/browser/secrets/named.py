"""Secrets that the configuration names: a caller types `%NAME%`, pages get the value, and results show the name again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote, quote_plus

from ..session.failures import ToolFailed
from ..snapshot.world import origin_of

SHORTEST: Final = 4
"""The shortest value in characters; a shorter one occurs in every page, and would be masked there."""
SIMILARITY: Final = 0.8
"""How similar an unknown name must be to a configured one to count as a misspelling of it."""

_POSSIBLE_NAME: Final = re.compile(r"%(?=([A-Za-z_]\w*)%)", re.ASCII)
_REF: Final = r"\[ref=[gtfe\d]+\]"
"""Matches a ref of a snapshot, which stays as it is even if its number is a secret."""
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""Matches a text in quotes in Python. Quotes inside of it begin no other one."""
_Text = TypeVar("_Text", str, bytes)

_UNESCAPED: Final = ("", "!'()*", "*")
"""The signs besides letters, digits and `-._~` that stay in an encoded URL: none, as JavaScript has it, and in forms."""


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """One secret. It may be typed into pages of its origin only, or into all pages if it has none."""

    name: str
    value: str = field(repr=False)
    origin: str | None = None


class NamedSecrets:
    """The named secrets of one configuration. They do not change while the process runs."""

    def __init__(self, secrets: Iterable[NamedSecret] = ()) -> None:
        self._secrets: dict[str, dict[str | None, str]] = {}
        """The values by name and by the origin that they are for."""
        references: dict[str, str] = {}
        self._literals: dict[str, str] = {}
        """The code that reads a value, by the texts in quotes in its place."""
        for secret in secrets:
            self._secrets.setdefault(secret.name, {})[secret.origin] = secret.value
            for form in _forms_of(secret.value):
                references.setdefault(form, f"%{secret.name}%")
            for text in (f"%{secret.name}%", secret.value):
                for literal in (repr(text), json.dumps(text, ensure_ascii=False)):
                    self._literals.setdefault(literal, f'os.environ["{secret.name}"]')
        self._reference = re.compile(f"%({'|'.join(map(re.escape, self._secrets))})%")
        self._text = _Replacements(references)
        self._bytes = {form.encode(): name.encode() for form, name in references.items()}
        self._bytes_pattern = re.compile(
            b"|".join([_REF.encode(), *map(re.escape, _longest_first(self._bytes))])
        )

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __str__(self) -> str:
        """The names as a caller types them, each with the origins that it is for."""
        return ", ".join(
            f"%{name}%{_in_brackets(filter(None, values))}"
            for name, values in self._secrets.items()
        )

    @property
    def values(self) -> Sequence[str]:
        return [value for values in self._secrets.values() for value in values.values()]

    def may_be_in(self, text: str) -> bool:
        """Return whether insert() may find a name in a text."""
        return bool(self._secrets) and "%" in text

    def insert(self, text: str, url: str) -> str:
        """Return a text with the values of the names in it, for the page at an address.

        Raises:
            ToolFailed: A secret is not for that origin, or a name is almost that of a secret.
        """
        if not self.may_be_in(text):
            return text
        origin = origin_of(url)
        for name in _POSSIBLE_NAME.findall(text):
            if name not in self._secrets:
                self._refuse_misspelled(name)
        return self._reference.sub(lambda match: self._value(match[1], origin), text)

    def _value(self, name: str, origin: str | None) -> str:
        values = self._secrets[name]
        if None in values:
            return values[None]
        if origin is None or origin not in values:
            where = f"this one is of {origin}" if origin else "this one is of no site"
            raise ToolFailed(
                f"%{name}% is only for pages of {' and '.join(filter(None, values))}; {where}. Nothing was put in."
            )
        return values[origin]

    def _refuse_misspelled(self, name: str) -> None:
        import difflib  # here because only a wrong name needs it

        known_names = {known.upper(): known for known in self._secrets}
        matches = difflib.get_close_matches(name.upper(), known_names, n=1, cutoff=SIMILARITY)
        if matches:
            raise ToolFailed(
                f"There is no secret %{name}%; did you mean %{known_names[matches[0]]}%? Nothing was put in."
            )

    def consists_of_names(self, text: str) -> bool:
        """Return whether a text, as the caller wrote it, has names of secrets and nothing else."""
        return bool(self._secrets and text) and not self._reference.sub("", text)

    def mask(self, text: str) -> str:
        """Return a text in which each value is replaced by its name: as it is, and as JSON and URLs write it."""
        return self._text.apply(text)

    def mask_code(self, code: str) -> str:
        """Return Python that reads values from the environment; where one is only part of a text, it is masked."""
        if self._secrets:
            code = _QUOTED.sub(lambda match: self._literals.get(match[0], match[0]), code)
        return self._text.apply(code)

    def mask_bytes(self, data: bytes) -> bytes:
        """Return the bytes of a text in which each value is replaced as in mask()."""
        if not any(each in data for each in self._bytes):
            return data
        return self._bytes_pattern.sub(lambda match: self._bytes.get(match[0], match[0]), data)

    def mask_file(self, data: bytes) -> bytes:
        """Return the content of a file: as mask_bytes() does if it is text in UTF-8, else unchanged."""
        try:
            if self._secrets:
                data.decode()
        except UnicodeDecodeError:
            return data
        return self.mask_bytes(data)


class _Replacements:
    """Texts, each with its replacement. All are replaced in one pass: a replacement is never searched again."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._replacements = replacements
        self._pattern = re.compile("|".join([_REF, *map(re.escape, _longest_first(replacements))]))

    def apply(self, text: str) -> str:
        # A search for each text is faster than the expression, and mostly finds none.
        if not any(each in text for each in self._replacements):
            return text
        return self._pattern.sub(lambda m: self._replacements.get(m[0], m[0]), text)


def _longest_first(texts: Iterable[_Text]) -> list[_Text]:
    return sorted(texts, key=len, reverse=True)


def _forms_of(value: str) -> list[str]:
    """Return the forms in which pages, requests and results write a value."""
    encoded = [encode(value, safe) for safe in _UNESCAPED for encode in (quote, quote_plus)]
    escaped = [json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)]
    forms = [value, " ".join(value.split()), repr(value)[1:-1], *escaped, *encoded]
    return [form for form in dict.fromkeys(forms) if len(form) >= SHORTEST]


def _in_brackets(origins: Iterable[str]) -> str:
    text = ", ".join(origins)
    return f" ({text})" if text else ""


__all__ = ["SHORTEST", "NamedSecret", "NamedSecrets"]
