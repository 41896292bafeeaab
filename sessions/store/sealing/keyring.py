"""The keys of a store: a data key for each principal, which the sealing key of the operator encrypts.

A deleted data key ends what was sealed with it, also in copies that do not have the key. The check row shows at the start
whether the sealing key is that of the store. A new sealing key encrypts the data keys anew, and leaves the data as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from binascii import a2b_base64, b2a_base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from sqlalchemy import (
    Connection,
    FromClause,
    String,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from ...errors import StoreUnavailable
from ...owned_map import BoundedMap
from .. import schema
from ..dialect import wait_for_exclusive
from ..dialect.values import MARK
from ..rows import columns_of
from ..schema import CONTROL, FORM, NAME
from .encryption import MAGIC, NONCE_BYTES, DecryptionFailed, Encryption, cipher
from .key_file import KEY_FILE, key_in

logger = logging.getLogger("statehold.store")

Row = Mapping[str, Any]
Run = Callable[[Callable[[Connection], Any]], Awaitable[Any]]

SEALING: Final = "statehold_sealing"
"""The execution option of a connection that has the Keyring of its store."""
NEW_KEYS: Final = "statehold.new_keys"
"""The key in the info of a connection with the ids of the data keys that its transaction inserted: it may be undone."""
MARK_BYTES: Final = MARK.encode()
CHECK: Final = "check"
"""The digest of the check row. Its id tells what the store seals."""
LOGINS, CONTENT, FORMER = "logins", "content", "former"
OPERATOR: Final = ""
"""The owner of what is not of one principal."""
ID_CHARACTERS: Final = 12
MAX_KNOWN: Final = 10_000

_k = schema.data_key.c
_OF_OWNER = select(schema.data_key).where(_k.digest == bindparam("digest", type_=String()))
_OF_ID = select(schema.data_key).where(_k.id == bindparam("id", type_=String()))
_SEALED = select(schema.session.c.id).where(schema.session.c.metadata.like(f"{MARK}%")).limit(1)
_OWNER = select(schema.session.c.owner).where(
    schema.session.c.id == bindparam("id", type_=String())
)


class DataKey:
    """AES-256-GCM with the key of one principal. A nonce is random; that of a name is computed from it.

    A value is bound to its place, and opens at no other.
    """

    def __init__(self, key_id: str, digest: str, key: bytes) -> None:
        self.id = key_id
        self.digest = digest
        self._cipher = cipher(key)
        self._name_key = hmac.digest(key, b"names", "sha256")

    def seal_text(self, text: str, place: bytes, *, is_name: bool = False) -> str:
        sealed = self._encrypt(text.encode(), place, is_name=is_name)
        return f"{MARK}{self.id}{b2a_base64(sealed, newline=False).decode()}"

    def seal_bytes(self, data: bytes, place: bytes) -> bytes:
        return MARK_BYTES + self.id.encode() + self._encrypt(data, place)

    def _encrypt(self, content: bytes, place: bytes, *, is_name: bool = False) -> bytes:
        digest = hmac.digest(self._name_key, content, "sha256") if is_name else None
        nonce = digest[:NONCE_BYTES] if digest else secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, place)

    def open(self, sealed: str | bytes, place: bytes) -> bytes:
        """
        Raises:
            DecryptionFailed: the value was changed or moved since it was sealed.
        """
        from cryptography.exceptions import InvalidTag

        try:
            data = a2b_base64(sealed) if isinstance(sealed, str) else sealed
            return self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise DecryptionFailed("A sealed value was changed or moved in the store.") from None


class Keyring:
    """The sealing key of one store, and the data keys that were used. Its methods with a connection run in a transaction.

    `read_keys` returns the sealing keys, the current one first; the others are former ones. Without it, only the values of
    logins are sealed, with a key that is made in the data folder at the first use, in a file that only its
    user can read, or in memory if there is no folder.
    """

    def __init__(
        self,
        folder: Path | None = None,
        read_keys: Callable[[], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self.seals_content = read_keys is not None
        self._folder = folder
        self._read_keys = read_keys
        self._encryptions: list[Encryption] = []
        """That of the store first, once it is open. Several threads use the list."""
        self._loading = anyio.Lock()
        self._data_keys: dict[str, DataKey] = {}
        """By id. Several threads use it."""
        self._session_keys = BoundedMap[str, DataKey](MAX_KNOWN)
        """By session, which has the same key as long as it exists. Only the writer uses it."""

    async def load(self) -> None:
        """Have the sealing keys, some 50 ms after the first call.

        Raises:
            StoreUnavailable: there is none.
        """
        async with self._loading:
            if self._encryptions:
                return
            words = (
                "The sealing key" if self.seals_content else f"The key of the logins, {KEY_FILE}"
            )
            try:
                keys = None if self._read_keys is None else await self._read_keys()
                self._encryptions = await anyio.to_thread.run_sync(self._new_encryptions, keys)
            except OSError as error:
                problem = error.strerror or type(error).__name__
                raise StoreUnavailable(f"{words}: {problem}") from error
            except ValueError as error:
                raise StoreUnavailable(f"{words}: {error}") from error

    def _new_encryptions(self, keys: Sequence[str] | None) -> list[Encryption]:
        if keys is None:
            return [Encryption(key_in(self._folder))]
        if not keys:
            raise ValueError("there is none")
        # The store may have sealed logins with the key of its folder before.
        if self._folder is not None and (self._folder / KEY_FILE).exists():
            keys = [*keys, key_in(self._folder)]
        return [Encryption(key) for key in keys]

    async def open(self, read: Run, write: Run) -> None:
        """Check the sealing key of a database, on which these run functions. If it is a new one, encrypt the data keys anew.

        A key that was replaced is not used again, in whatever order the keys are given.

        Raises:
            StoreUnavailable: it is not that of the store, or there is none and the store is sealed.
        """
        check, former = await read(_read_checks)
        if not self.seals_content:
            if check is not None and check.id == CONTENT:
                raise StoreUnavailable("The store is sealed. Give its key in sealing.keys.")
            return
        await self.load()
        if check is not None and any(map(self._current.has_encrypted, former)):
            self._use(check)
        if check is None or check.id != CONTENT or not self._current.has_encrypted(check.wrapped):
            try:
                await write(self._adopt)
            except DecryptionFailed as error:
                raise StoreUnavailable(error.message) from None

    @property
    def _current(self) -> Encryption:
        return self._encryptions[0]

    def _adopt(self, connection: Connection) -> None:
        """Have every data key, and the check row, encrypted with the current sealing key."""
        if connection.dialect.name == "mysql":
            raise StoreUnavailable(
                "A store on MariaDB cannot be sealed: its columns are too short."
            )
        wait_for_exclusive(connection, schema.version)
        check, _ = _read_checks(connection)
        if check is None and connection.execute(_SEALED).first() is not None:
            raise StoreUnavailable(
                "The store is sealed, and its table data_key is empty: restore that table first."
            )
        if check is not None and check.id == CONTENT:
            self._unwrap(check)
            if not self._current.has_encrypted(check.wrapped):
                digest = owner_digest(check.wrapped.hex())
                former = {"digest": digest, "id": FORMER, "wrapped": check.wrapped}
                connection.execute(insert(schema.data_key), former)
                logger.warning("the data keys are encrypted with a new sealing key")
        keys = select(schema.data_key).where(_k.digest != CHECK, _k.id != FORMER)
        for row in connection.execute(keys).all():
            this = _k.digest == row.digest
            if check is not None and check.id == LOGINS and not self._can_open(row.wrapped):
                _require_own(connection)
                logger.warning("logins are lost, whose %s is gone", KEY_FILE)
                connection.execute(delete(schema.data_key).where(this))
            elif not self._current.has_encrypted(row.wrapped):
                wrapped = self._wrap(row.digest, row.id, self._unwrap(row))
                connection.execute(update(schema.data_key).where(this).values(wrapped=wrapped))
        self._put_check(connection, CONTENT)

    def _put_check(self, connection: Connection, kind: str) -> None:
        connection.execute(delete(schema.data_key).where(_k.digest == CHECK))
        row = {"digest": CHECK, "id": kind, "wrapped": self._wrap(CHECK, kind, b"")}
        connection.execute(insert(schema.data_key), row)

    def _can_open(self, wrapped: bytes) -> bool:
        return any(each.has_encrypted(wrapped) for each in self._encryptions)

    def _use(self, check: Any) -> None:
        """Put the sealing key of the store first."""
        keys = sorted(self._encryptions, key=lambda each: not each.has_encrypted(check.wrapped))
        self._encryptions = keys

    def _wrap(self, digest: str, key_id: str, key: bytes) -> bytes:
        return self._current.encrypt(key, f"{digest} {key_id}".encode())

    def _unwrap(self, row: Any) -> bytes:
        return self._decrypt(row.wrapped, f"{row.digest} {row.id}".encode())

    def _decrypt(self, wrapped: bytes, place: bytes = b"") -> bytes:
        for encryption in self._encryptions:
            if encryption.has_encrypted(wrapped):
                return encryption.decrypt(wrapped, place)
        raise DecryptionFailed(
            "The store is sealed with another key than that of this server. Give that key in sealing.keys: first to use it, "
            "or after a new one to replace it."
        )

    def find_key(self, connection: Connection, owner: str) -> DataKey | None:
        """Return the data key of a principal, None if there is none that can be opened."""
        row = connection.execute(_OF_OWNER, {"digest": owner_digest(owner)}).first()
        if row is None:
            return None
        try:
            return self._data_key(row)
        except DecryptionFailed:
            if self.seals_content:
                raise
        return None

    def key_of(self, connection: Connection, owner: str) -> DataKey:
        """Return the data key of a principal, a new one if there is none.

        A key of logins that cannot be opened is replaced if no other data folder may have it: they are lost already.

        Raises:
            DecryptionFailed: the sealing key was replaced.
        """
        key = self.find_key(connection, owner)
        if key is None:
            wait_for_exclusive(connection, schema.version)
            # Another process may have been first.
            key = self.find_key(connection, owner) or self._add_key(connection, owner)
        return key

    def _add_key(self, connection: Connection, owner: str) -> DataKey:
        check, _ = _read_checks(connection)
        if check is not None:
            # Another process may have replaced the key.
            self._use(check)
        if check is None or not self._current.has_encrypted(check.wrapped):
            if check is not None and (self.seals_content or check.id == CONTENT):
                raise DecryptionFailed(
                    "The sealing key was replaced: start again with the new one."
                )
            if check is not None:
                _require_own(connection)
            self._put_check(connection, CONTENT if self.seals_content else LOGINS)
        digest, key_id = owner_digest(owner), secrets.token_urlsafe(ID_CHARACTERS * 3 // 4)
        key = secrets.token_bytes(32)
        connection.execute(delete(schema.data_key).where(_k.digest == digest))
        new = {"digest": digest, "id": key_id, "wrapped": self._wrap(digest, key_id, key)}
        connection.execute(insert(schema.data_key), new)
        connection.info.setdefault(NEW_KEYS, set()).add(key_id)
        return DataKey(key_id, digest, key)

    def _data_key(self, row: Any) -> DataKey:
        key = self._data_keys.get(row.id)
        if key is None:
            key = DataKey(row.id, row.digest, self._unwrap(row))
            if len(self._data_keys) >= MAX_KNOWN:
                self._data_keys.clear()
            self._data_keys[row.id] = key
        return key

    def _key_of_session(self, connection: Connection, session_id: str) -> DataKey | None:
        key = self._session_keys.get(session_id)
        if key is None:
            owner = connection.scalar(_OWNER, {"id": session_id})
            if owner is None:
                return None
            key = self.key_of(connection, owner)
            if key.id not in connection.info.get(NEW_KEYS, ()):
                self._session_keys[session_id] = key
        return key

    def seal(self, connection: Connection, table: FromClause, row: Row, owner: str | None) -> Row:
        """Return a row with its content sealed. That of a session that is gone is left out."""
        content = _content_of(table, row)
        if not content:
            return row
        owner = row.get("owner", owner)
        if owner is None:
            key = self._key_of_session(connection, row.get("session_id") or row["b_id"])
        else:
            key = self.key_of(connection, owner)
        if key is None:
            return {**row, **dict.fromkeys(name for name, _ in content)}
        sealed: dict[str, Any] = {}
        for name, form in content:
            value, place = row[name], _place(table, name, form, row)
            if isinstance(value, bytes):
                sealed[name] = key.seal_bytes(value, place)
                continue
            clear, rest = "", value
            if form == CONTROL:
                clear, comma, rest = value.partition(",")
                rest = comma + rest
            sealed[name] = clear + key.seal_text(rest, place + clear.encode(), is_name=form == NAME)
        return {**row, **sealed}

    def open_content(self, connection: Connection, table: FromClause, row: Row) -> Row:
        """Return a row with its content as it was before it was sealed.

        Raises:
            DecryptionFailed: a data key was deleted, or a value was changed or moved.
        """
        opened: dict[str, Any] = {}
        owner = owner_digest(row["owner"]) if "owner" in row else None
        for name, form in _content_of(table, row):
            value, place = row[name], _place(table, name, form, row)
            if isinstance(value, bytes):
                if value.startswith(MARK_BYTES):
                    opened[name] = self.open_bytes(connection, value, place, owner)
            elif MARK in value:
                clear, _, sealed = value.partition(MARK)
                key = self._read_key(connection, sealed[:ID_CHARACTERS], owner)
                content = key.open(sealed[ID_CHARACTERS:], place + clear.encode())
                opened[name] = clear + content.decode()
        return {**row, **opened}

    def open_bytes(
        self, connection: Connection, value: bytes, place: bytes, owner: str | None
    ) -> bytes:
        """Return the bytes in a sealed value; see open_content(). `owner` is the digest of its principal, if it is known."""
        if value.startswith(MAGIC):
            return self._decrypt(value)  # a login that was stored before there were data keys
        start = len(MARK_BYTES) + ID_CHARACTERS
        key_id = value[len(MARK_BYTES) : start].decode(errors="replace")
        return self._read_key(connection, key_id, owner).open(value[start:], place)

    def _read_key(self, connection: Connection, key_id: str, owner: str | None) -> DataKey:
        key = self._data_keys.get(key_id)
        if key is None:
            row = connection.execute(_OF_ID, {"id": key_id}).first()
            if row is None:
                raise DecryptionFailed("A value is sealed with a key that was deleted.")
            key = self._data_key(row)
        if owner not in (None, key.digest):
            raise DecryptionFailed("A value is sealed with the key of another principal.")
        return key


def _require_own(connection: Connection) -> None:
    """Refuse to give up logins of a database that processes with other data folders may use."""
    if connection.dialect.name != "sqlite":
        raise DecryptionFailed(
            f"The logins of this database are sealed with another {KEY_FILE}: copy that file from the data folder of the "
            "process that stored them. If it is lost, empty the table data_key."
        )


def owner_digest(owner: str) -> str:
    # The length of a key of a principal has no bound.
    return hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()


def _read_checks(connection: Connection) -> tuple[Any, list[bytes]]:
    """Return the check row, None without one, and what the keys that were replaced have encrypted."""
    check = connection.execute(_OF_OWNER, {"digest": CHECK}).first()
    return check, list(connection.scalars(select(_k.wrapped).where(_k.id == FORMER)))


@cache
def _forms(table: FromClause) -> dict[str, str]:
    return {column.key: column.info[FORM] for column in table.c if FORM in column.info}


def _content_of(table: FromClause, row: Row) -> list[tuple[str, str]]:
    """Return the columns of a row that have content of callers, each with its form."""
    return [(name, form) for name, form in _forms(table).items() if row.get(name) is not None]


def _place(table: FromClause, column: str, form: str, row: Row) -> bytes:
    """Return the place to which a value is bound: its column, and the key of its row, but for names, which are looked up."""
    keys = () if form == NAME else table.primary_key
    # An update of a session has its id as a parameter.
    texts = [str(row["b_id"] if "b_id" in row else row[key.name]) for key in keys]
    return "\0".join((table.description, column, *texts)).encode()


def sealing_of(connection: Connection) -> Keyring | None:
    """Return the keys of the store of a connection, None if it does not seal content."""
    keyring: Keyring | None = connection.get_execution_options().get(SEALING)
    return keyring if keyring is not None and keyring.seals_content else None


def seal_rows(
    connection: Connection, table: FromClause, rows: Sequence[Row], owner: str | None = None
) -> Sequence[Row]:
    """Return rows of a table as they are stored: with the content of callers sealed, if the store seals.

    Each has the primary key of the table. It belongs to its `owner` or to that of its session, else to the owner that is
    given.
    """
    keyring = sealing_of(connection)
    if keyring is None:
        return rows
    return [keyring.seal(connection, table, row, owner) for row in rows]


def open_row(connection: Connection, row: Any, *tables: Table) -> Row:
    """Return the columns of a result row by name, with the content of these tables as it was before it was sealed.

    The row has the primary key of each.
    """
    columns, keyring = columns_of(row), sealing_of(connection)
    if keyring is not None:
        for table in tables:
            columns = keyring.open_content(connection, table, columns)
    return columns


def name_forms(connection: Connection, owner: str, name: str) -> list[str]:
    """Return the values that the column of a name may have: sealed, and as before the store sealed."""
    keyring = sealing_of(connection)
    key = None if keyring is None else keyring.find_key(connection, owner)
    if key is None:
        return [name]
    place = _place(schema.session, "name", NAME, {})
    return [key.seal_text(name, place, is_name=True), name]
