"""The encryption of the values of logins, of every kind, with one key for all nodes of a store."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

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

    async def seal(self, value: str) -> bytes:
        return (await self._load()).encrypt(value.encode())

    async def open(self, record: LoginRecord) -> bytes:
        """Return the value of a login.

        Raises:
            StoreUnavailable: it is sealed with another key.
        """
        encryption = await self._load()
        try:
            return encryption.decrypt(record.sealed)
        except DecryptionFailed:
            raise StoreUnavailable(
                f"the login {record.name} is sealed with another key than that of this server"
            ) from None

    async def _load(self) -> Encryption:
        if self._encryption is None:
            self._encryption = await anyio.to_thread.run_sync(self._new_encryption)
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
        new.touch(mode=0o600)
        new.write_text(key)
        # The first link is the key; a file could be read before it is written.
        with suppress(FileExistsError):
            file.hardlink_to(new)
        new.unlink()
    return file.read_text().strip()
