"""Texts typed into secret fields of a session. They are masked in snapshots and kept out of the journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MASK: Final = "••••••"
SHORTEST: Final = 3
"""The shortest text that is remembered: one digit of a code is in every page."""
SHORTEST_INSIDE: Final = 4
"""The shortest text that is masked inside the value of a field; a shorter one is masked only as the whole value."""
MOST: Final = 100

_FIELDS: Final = ("- textbox", "- searchbox", "- spinbutton", "- combobox", "- text: ")
"""The beginnings of those lines of a snapshot that may end with the value of a field."""

_SOURCE: Final = (Path(__file__).parents[1] / "snapshot" / "page" / "secrets.js").read_text("utf-8")
IS_SECRET: Final = f"""element => {{
{_SOURCE}
  // As Playwright finds the field that it fills.
  const own = element.matches("input, textarea, select") || element.isContentEditable;
  const field = own ? element : element.closest("label")?.control ?? element;
  return looksSecret(field, field => Array.from(field.labels ?? [], label => label.textContent.slice(0, 300)).join(" "));
}}"""
"""A function of JavaScript that returns whether text typed into an element goes into a secret field."""


class TypedSecrets:
    """The secret texts typed in one session. Lives as long as its context; restored pages contain none of them."""

    def __init__(self) -> None:
        self._forms: dict[str, set[str]] = {}

    def __contains__(self, text: str) -> bool:
        return text in self._forms

    @property
    def texts(self) -> Sequence[str]:
        return tuple(self._forms)

    def add(self, text: str) -> None:
        """Remember a text of at least LEAST characters. Beyond KEPT texts, the one typed longest ago is forgotten."""
        if len(text) < SHORTEST:
            return
        self._forms.pop(text, None)
        # The forms in which a snapshot writes it: with single blanks, and quoted where YAML needs that.
        plain = " ".join(text.split())
        as_json = json.dumps(plain, ensure_ascii=False)
        self._forms[text] = {plain, as_json, as_json[1:-1]} - {""}
        if len(self._forms) > MOST:
            del self._forms[next(iter(self._forms))]

    def mask(self, snapshot: str) -> str:
        """Return a snapshot in which the texts are masked in values of fields."""
        forms_found = [form for forms in self._forms.values() for form in forms if form in snapshot]
        if not forms_found:
            return snapshot
        return "\n".join(_mask_line(line, forms_found) for line in snapshot.split("\n"))


def _mask_line(line: str, forms: Sequence[str]) -> str:
    if not line.lstrip().startswith(_FIELDS):
        return line
    for form in forms:
        if line.endswith(f": {form}"):
            return line.removesuffix(form) + MASK
    head, end, value = line.partition("]: ")
    if any(len(form) >= SHORTEST_INSIDE and form in value for form in forms):
        return f"{head}{end}{MASK}"
    return line


__all__ = ["IS_SECRET", "MASK", "TypedSecrets"]
