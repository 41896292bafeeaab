"""The values that pass between the store and the files of the databases."""

from __future__ import annotations

from typing import Literal

Violated = Literal["name", "id", "other"]
"""Which unique constraint a refused row ran into."""


class Packed(list[str]):
    """Texts that go to the database as one parameter: as JSON, an array or a list, whatever it knows best."""
