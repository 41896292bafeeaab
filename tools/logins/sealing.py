"""The encryption of the values of logins, of every kind, with one key for all nodes of a store."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ...sessions.errors import StoreUnavailable
from ...sessions.store.base import LoginRecord
from ..browser.snapshot.encryption import DecryptionFailed, Encryption

KEY_FILE: Final = "logins.key"


class LoginSealing:
    """Seals and opens the values of logins. Any task may use it; it has nothing to close.

    Without a `key`, one is made in the data folder at the first use, in a file that only its user can read, or in memory if
    there is no folder.
    """

    def __init__(self, folder: Path | None, key: str | None = None) -> None:
        self._folder = folder
        self._key = key
        self._encryption: Encryption | None = None
        self._loading = anyio.Lock()

    async def seal(self, value: str) -> bytes:
        """Return the sealed value of a login.

        Raises:
            StoreUnavailable: there is no key.
        """
        return (await self._load()).encrypt(value.encode())

    async def open(self, record: LoginRecord) -> bytes:
        """Return the value of a login.

        Raises:
            StoreUnavailable: it is sealed with another key, or there is none.
        """
        encryption = await self._load()
        try:
            return encryption.decrypt(record.sealed)
        except DecryptionFailed:
            raise StoreUnavailable(
                f"the login {record.name} is sealed with another key than that of this server"
            ) from None

    async def _load(self) -> Encryption:
        async with self._loading:
            if self._encryption is None:
                try:
                    self._encryption = await anyio.to_thread.run_sync(self._new_encryption)
                except OSError as error:
                    words = error.strerror or type(error).__name__
                    raise StoreUnavailable(f"the key of the logins, {KEY_FILE}: {words}") from error
                except ValueError as error:
                    raise StoreUnavailable(f"the key of the logins: {error}") from error
        return self._encryption

    def _new_encryption(self) -> Encryption:
        """Blocks for some 50 ms."""
        return Encryption(self._key or _key_in(self._folder))


def _key_in(folder: Path | None) -> str:
    """Return the key of a data folder; of several processes that make one at once, all get the same."""
    key = secrets.token_urlsafe(32)
    if folder is None:
        return key
    file = folder / KEY_FILE
    if not file.exists():
        new = file.with_name(f".{KEY_FILE}.{secrets.token_hex(4)}")
        try:
            _write(new, key)
            # The first link is the key; a file could be read before it is written.
            try:
                file.hardlink_to(new)
            except OSError:
                # Another process was first, or the file system has no hard links.
                with suppress(FileExistsError):
                    _write(file, key)
        finally:
            new.unlink(missing_ok=True)
    return file.read_text().strip()


def _write(file: Path, text: str) -> None:
    """Write a new file that only its user can read, and have it on the disk."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
