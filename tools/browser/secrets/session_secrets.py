"""The secrets of one session: the named ones, and texts typed into secret fields. Neither reaches results or the journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ....sessions.owned_map import BoundedMap
from .named import NamedSecrets
from .snapshot_line import parse_line
from .spellings import MASK

SHORTEST: Final = 3
"""The shortest text that is remembered for the journal: one digit of a code is in every page."""
SHORTEST_INSIDE: Final = 4
"""The shortest text that is masked inside the value of a field; a shorter one is masked only as the whole value."""
MAX_TEXTS: Final = 100

_FIELDS: Final = frozenset({"textbox", "searchbox", "spinbutton", "combobox", "text"})
"""The roles of those lines of a snapshot that may end with the value of a field."""

_SOURCE: Final = (Path(__file__).parents[1] / "devtools" / "page" / "secrets.js").read_text("utf-8")
IS_SECRET: Final = f"""element => {{
{_SOURCE}
  // As Playwright finds the field that it fills.
  const own = element.matches("input, textarea, select") || element.isContentEditable;
  const field = own ? element : element.closest("label")?.control ?? element;
  return looksSecret(field, field => Array.from(field.labels ?? [], label => label.textContent.slice(0, 300)).join(" "));
}}"""
"""A function of JavaScript that returns whether text typed into an element goes into a secret field."""


class SessionSecrets:
    """The named secrets, and the texts typed into secret fields. Lives as long as the context of the session.

    Restored pages contain none of the typed texts.
    """

    def __init__(self, named: NamedSecrets | None = None) -> None:
        self.named = (NamedSecrets() if named is None else named).for_session()
        self._forms = BoundedMap[str, set[str]](MAX_TEXTS)
        """The typed texts, each with the forms in which a snapshot writes it."""
        self.may_be_typed = False
        """Whether a person has control, who may have typed what is in no record if this process ends now."""

    @property
    def texts(self) -> Sequence[str]:
        """The texts that the journal must not record."""
        return (*self.named.masked_values, *(t for t in self._forms if len(t) >= SHORTEST))

    def add(self, text: str) -> None:
        """Remember a text of at least SHORTEST characters. Beyond MAX_TEXTS, the one typed longest ago is forgotten."""
        if len(text) >= SHORTEST:
            self._remember(text)

    def _remember(self, text: str) -> None:
        # The forms in which a snapshot writes it: with single blanks, and quoted where YAML needs that.
        plain = " ".join(text.split())
        as_json = json.dumps(plain, ensure_ascii=False)
        self._forms[text] = {plain, as_json, as_json[1:-1]} - {""}

    def hide(self, text: str) -> None:
        """Remember a text that a person typed: it is masked wherever it stands, a short one as the value of a field."""
        if text.strip():
            self._remember(text)
            self.named.typed.add(text)

    def mask_snapshot(self, snapshot: str) -> str:
        """Return a snapshot in which typed texts are masked in values of fields, and named secrets everywhere."""
        snapshot = self.named.mask(snapshot)
        forms_found = [form for forms in self._forms.values() for form in forms if form in snapshot]
        if not forms_found:
            return snapshot
        return "\n".join(_mask_line(line, forms_found) for line in snapshot.split("\n"))


def _mask_line(line: str, forms: Sequence[str]) -> str:
    parts = parse_line(line)
    if parts is None or parts.role not in _FIELDS:
        return line
    for form in forms:
        is_field = parts.role != "text" or len(form) >= SHORTEST
        if is_field and line.endswith(f": {form}"):
            return line.removesuffix(form) + MASK
    # A text without a field around it may be any text of the page.
    if parts.role != "text" and any(
        len(form) >= SHORTEST_INSIDE and form in parts.value for form in forms
    ):
        return f"{parts.key}: {MASK}"
    return line
