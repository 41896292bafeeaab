"""The keys of a store: a data key for each principal, which the sealing key of the operator encrypts.

A deleted data key ends what was sealed with it, also in copies that do not have the key. The check row shows at the start
whether the sealing key is that of the store. A new sealing key encrypts the data keys anew, and leaves the data as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from binascii import a2b_base64, b2a_base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from sqlalchemy import Connection, FromClause, String, bindparam, delete, insert, select, update

from ...errors import StoreUnavailable
from ...owned_map import BoundedMap
from .. import schema
from ..dialect import wait_for_exclusive
from ..dialect.values import MARK
from .columns import MARK_BYTES, NEW_KEYS, SEALING, BytesContent, Content
from .encryption import MAGIC, NONCE_BYTES, DecryptionFailed, Encryption, cipher
from .key_file import KEY_FILE, key_in

Row = Mapping[str, Any]
Run = Callable[[Callable[[Connection], Any]], Awaitable[Any]]

CHECK: Final = "check"
"""The digest of the check row. Its id tells what the store seals."""
LOGINS, CONTENT = "logins", "content"
OPERATOR: Final = ""
"""The owner of what is not of one principal."""
ID_CHARACTERS: Final = 12
MAX_KNOWN: Final = 10_000

_k = schema.data_key.c
_OF_OWNER = select(_k.id, _k.wrapped).where(_k.digest == bindparam("digest", type_=String()))
_OF_ID = select(_k.wrapped).where(_k.id == bindparam("id", type_=String()))
_OWNER = select(schema.session.c.owner).where(
    schema.session.c.id == bindparam("id", type_=String())
)


class DataKey:
    """AES-256-GCM with the key of one principal. A nonce is random; that of a name is computed from it."""

    def __init__(self, key_id: str, key: bytes) -> None:
        self.id = key_id
        self._cipher = cipher(key)
        self._name_key = hmac.digest(key, b"names", "sha256")

    def seal_text(self, text: str, *, is_name: bool = False) -> str:
        content = text.encode()
        sealed = self._encrypt(content, is_name=is_name)
        return f"{MARK}{self.id}{b2a_base64(sealed, newline=False).decode()}"

    def seal_bytes(self, data: bytes) -> bytes:
        return MARK_BYTES + self.id.encode() + self._encrypt(data)

    def _encrypt(self, content: bytes, *, is_name: bool = False) -> bytes:
        digest = hmac.digest(self._name_key, content, "sha256") if is_name else None
        nonce = digest[:NONCE_BYTES] if digest else secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, None)

    def decrypt(self, sealed: bytes) -> bytes:
        """
        Raises:
            DecryptionFailed: the value was changed since it was sealed.
        """
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
        except (InvalidTag, ValueError):
            raise DecryptionFailed("A sealed value was changed in the store.") from None


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

        Raises:
            StoreUnavailable: it is not that of the store, or there is none and the store is sealed.
        """
        check = await read(_read_check)
        if not self.seals_content:
            if check is not None and check.id == CONTENT:
                raise StoreUnavailable("The store is sealed. Give its key in sealing.keys.")
            return
        await self.load()
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
        check = _read_check(connection)
        if check is not None:
            self._unwrap(check.wrapped)
        for row in connection.execute(
            select(_k.digest, _k.wrapped).where(_k.digest != CHECK)
        ).all():
            if not self._current.has_encrypted(row.wrapped):
                wrapped = self._current.encrypt(self._unwrap(row.wrapped))
                this = update(schema.data_key).where(_k.digest == row.digest)
                connection.execute(this.values(wrapped=wrapped))
        self._put_check(connection, CONTENT)

    def _put_check(self, connection: Connection, kind: str) -> None:
        connection.execute(delete(schema.data_key).where(_k.digest == CHECK))
        row = {"digest": CHECK, "id": kind, "wrapped": self._current.encrypt(b"")}
        connection.execute(insert(schema.data_key), row)

    def _unwrap(self, wrapped: bytes) -> bytes:
        for encryption in self._encryptions:
            if encryption.has_encrypted(wrapped):
                return encryption.decrypt(wrapped)
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
            return self._data_key(row.id, row.wrapped)
        except DecryptionFailed:
            if self.seals_content:
                raise
        return None

    def key_of(self, connection: Connection, owner: str) -> DataKey:
        """Return the data key of a principal, a new one if there is none.

        A key of logins that cannot be opened is replaced: they are lost already.

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
        check = _read_check(connection)
        if check is None or not self._current.has_encrypted(check.wrapped):
            if self.seals_content and check is not None:
                raise DecryptionFailed(
                    "The sealing key was replaced: start again with the new one."
                )
            self._put_check(connection, CONTENT if self.seals_content else LOGINS)
        digest, key_id = owner_digest(owner), secrets.token_urlsafe(ID_CHARACTERS * 3 // 4)
        wrapped = self._current.encrypt(secrets.token_bytes(32))
        connection.execute(delete(schema.data_key).where(_k.digest == digest))
        new = {"digest": digest, "id": key_id, "wrapped": wrapped}
        connection.execute(insert(schema.data_key), new)
        connection.info.setdefault(NEW_KEYS, set()).add(key_id)
        return self._data_key(key_id, wrapped)

    def _data_key(self, key_id: str, wrapped: bytes) -> DataKey:
        key = self._data_keys.get(key_id)
        if key is None:
            key = DataKey(key_id, self._unwrap(wrapped))
            if len(self._data_keys) >= MAX_KNOWN:
                self._data_keys.clear()
            self._data_keys[key_id] = key
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

    def seal(
        self, connection: Connection, row: Row, columns: Mapping[str, Any], owner: str | None
    ) -> Row:
        """Return a row with its content sealed. That of a session that is gone is left out."""
        names = [name for name in columns if row.get(name) is not None]
        if not names:
            return row
        owner = row.get("owner", owner)
        if owner is None:
            key = self._key_of_session(connection, row.get("session_id") or row["b_id"])
        else:
            key = self.key_of(connection, owner)
        if key is None:
            return {**row, **dict.fromkeys(names)}
        return {**row, **{name: columns[name].seal(key, row[name]) for name in names}}

    def open_text(self, connection: Connection, sealed: str) -> str:
        """Return the text in a sealed value without its mark.

        Raises:
            DecryptionFailed: its data key was deleted, or the value was changed.
        """
        key = self._read_key(connection, sealed[:ID_CHARACTERS])
        return key.decrypt(a2b_base64(sealed[ID_CHARACTERS:])).decode()

    def open_bytes(self, connection: Connection, sealed: bytes) -> bytes:
        """Return the bytes in a sealed value; see open_text()."""
        if sealed.startswith(MAGIC):
            return self._unwrap(sealed)  # the value of a login that an earlier version stored
        start = len(MARK_BYTES) + ID_CHARACTERS
        key_id = sealed[len(MARK_BYTES) : start].decode(errors="replace")
        return self._read_key(connection, key_id).decrypt(sealed[start:])

    def _read_key(self, connection: Connection, key_id: str) -> DataKey:
        key = self._data_keys.get(key_id)
        if key is None:
            wrapped = connection.scalar(_OF_ID, {"id": key_id})
            if wrapped is None:
                raise DecryptionFailed("A value is sealed with a key that was deleted.")
            key = self._data_key(key_id, wrapped)
        return key


def owner_digest(owner: str) -> str:
    # The length of a key of a principal has no bound.
    return hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()


def _read_check(connection: Connection) -> Any:
    return connection.execute(_OF_OWNER, {"digest": CHECK}).first()


@cache
def _content_columns(table: FromClause) -> dict[str, Any]:
    kinds = (Content, BytesContent)
    return {column.key: column.type for column in table.c if isinstance(column.type, kinds)}


def sealing_of(connection: Connection) -> Keyring | None:
    """Return the keys of the store of a connection, None if it does not seal content."""
    keyring: Keyring | None = connection.get_execution_options().get(SEALING)
    return keyring if keyring is not None and keyring.seals_content else None


def seal_rows(
    connection: Connection, table: FromClause, rows: Sequence[Row], owner: str | None = None
) -> Sequence[Row]:
    """Return rows of a table as they are stored: with the content of callers sealed, if the store seals.

    A row belongs to its `owner` or to that of its session, else to the owner that is given.
    """
    keyring, columns = sealing_of(connection), _content_columns(table)
    if keyring is None or not columns:
        return rows
    return [keyring.seal(connection, row, columns, owner) for row in rows]


def name_forms(connection: Connection, owner: str, name: str) -> list[str]:
    """Return the values that the column of a name may have: sealed, and as before the store sealed."""
    keyring = sealing_of(connection)
    key = None if keyring is None else keyring.find_key(connection, owner)
    return [name] if key is None else [key.seal_text(name, is_name=True), name]
