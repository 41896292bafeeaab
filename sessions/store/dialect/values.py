"""The values that pass between the store and the files of the databases."""

from __future__ import annotations

from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Table
from sqlalchemy.sql.base import ReadOnlyColumnCollection

Violation = Literal["name", "id", "other"]
"""The unique constraint that a refused row violates."""

MARK: Final = "\x1aS1"
"""The beginning of a sealed text. JSON and names do not have its first character."""


def overwriting(
    table: Table, new: ReadOnlyColumnCollection[str, Any], *, add: bool
) -> dict[str, ColumnElement[Any]]:
    """Return the assignments of an insert to the row of the same primary key: the new values, or the sums of both."""
    keys = table.primary_key.columns
    return {
        item.name: item + new[item.name] if add else new[item.name]
        for item in table.c
        if item.name not in keys
    }


class PackedTexts(list[str]):
    """Texts passed to the database as one parameter: as JSON, an array or a list, depending on the database."""


def may_have_text(text: str, *stored: str | None) -> bool:
    """Return False if no stored value has a text in small letters. JSON without escapes has its texts as they are.

    True if one is sealed.
    """
    joined = "\n".join(filter(None, stored))
    return "\\" in joined or MARK in joined or text in joined.casefold()
