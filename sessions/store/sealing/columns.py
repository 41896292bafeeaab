"""The types of the columns with content of callers: a store with a sealing key seals them, and reads them as they were.

A sealed value names its data key, so that values written before the store sealed are read as well.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Dialect, LargeBinary, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from ..dialect.values import MARK

MARK_BYTES: Final = MARK.encode()
SEALING: Final = "statehold_sealing"
"""The execution option of a connection that has the Keyring of its store."""
NEW_KEYS: Final = "statehold.new_keys"
"""The key in the info of a connection with the ids of the data keys that its transaction inserted: it may be undone."""
CURRENT: Final[ContextVar[Connection]] = ContextVar("statehold_connection")
"""The connection whose work runs: a value may need a data key that was not read yet."""


class Sealer(Protocol):
    """A key that seals values."""

    def seal_text(self, text: str, *, is_name: bool = False) -> str: ...

    def seal_bytes(self, data: bytes) -> bytes: ...


class Content(TypeDecorator[str]):
    """Text of callers."""

    impl = Text
    cache_ok = True

    def seal(self, key: Sealer, value: Any) -> Any:
        return key.seal_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or MARK not in value:
            return value
        connection = CURRENT.get()
        # A part may stand in front of it, as in ControlContent.
        clear, _, sealed = value.partition(MARK)
        opened: str = connection.get_execution_options()[SEALING].open_text(connection, sealed)
        return clear + opened


class NameContent(Content):
    """A name by which rows are found: of one owner, the same name has the same sealed value."""

    cache_ok = True

    def seal(self, key: Sealer, value: Any) -> Any:
        return key.seal_text(value, is_name=True)


class LabelContent(Content):
    """A short text of callers. Sealed, it is longer; SQLite bounds no text."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Text() if dialect.name == "postgresql" else self.impl_instance


class ControlContent(Content):
    """The lease of control, whose first member, the driver, stays clear for filters."""

    cache_ok = True

    def seal(self, key: Sealer, value: Any) -> Any:
        driver, comma, rest = value.partition(",")
        return driver + key.seal_text(comma + rest)


class BytesContent(TypeDecorator[bytes]):
    """Bytes of callers."""

    impl = LargeBinary
    cache_ok = True

    def seal(self, key: Sealer, value: Any) -> Any:
        return key.seal_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        if value is None or not value.startswith(MARK_BYTES):
            return value
        connection = CURRENT.get()
        opened: bytes = connection.get_execution_options()[SEALING].open_bytes(connection, value)
        return opened
