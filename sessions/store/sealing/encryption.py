"""Encryption with a key of the operator: the stored data cannot be read without it."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final

from ...errors import ServiceUnavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC: Final = b"SHS1"
MARK_BYTES: Final = 4
NONCE_BYTES: Final = 12
SHORTEST_KEY: Final = 16
SALT: Final = b"statehold saved session"


class DecryptionFailed(ServiceUnavailable):
    """Raised when a saved session cannot be decrypted. It is then neither used nor overwritten."""

    retryable = False
    recovery = "Ask the operator of the server to configure the key the session was saved with, or make a new session."


class Encryption:
    """AES-256-GCM with one key; lives as long as its service. Each call of encrypt() uses a fresh random nonce.

    The key is a text of any form, best 32 random bytes. It is stretched with scrypt, once, which takes some 50 ms.

    Raises:
        ValueError: The key is too short.
    """

    def __init__(self, key: str) -> None:
        if len(key) < SHORTEST_KEY:
            raise ValueError(
                f"the key has {len(key)} characters, expected at least {SHORTEST_KEY}; "
                "make one with: openssl rand -base64 32"
            )
        derived_key = hashlib.scrypt(key.encode(), salt=SALT, n=2**14, r=8, p=1, dklen=32)
        self._mark = hashlib.sha256(SALT + derived_key).digest()[:MARK_BYTES]
        self._cipher = cipher(derived_key)

    def __repr__(self) -> str:
        return f"<Encryption {self._mark.hex()}>"

    def encrypt(self, content: bytes, place: bytes = b"") -> bytes:
        """Return the encrypted content, with a mark from which decrypt() recognizes the key. It opens at its place alone."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        head = MAGIC + self._mark
        return head + nonce + self._cipher.encrypt(nonce, content, head + place)

    def has_encrypted(self, data: bytes) -> bool:
        """Whether data begins as what this key encrypts."""
        return data.startswith(MAGIC + self._mark)

    def decrypt(self, data: bytes, place: bytes = b"") -> bytes:
        """Return the decrypted content.

        Raises:
            DecryptionFailed: It was encrypted with another key, or changed since.
        """
        from cryptography.exceptions import InvalidTag

        start = len(MAGIC) + MARK_BYTES
        head, nonce = data[:start], data[start : start + NONCE_BYTES]
        if head[: len(MAGIC)] != MAGIC:
            raise DecryptionFailed(
                "The saved session is damaged: it is not in the form that was written."
            )
        if head[len(MAGIC) :] != self._mark:
            raise DecryptionFailed(
                "The saved session is encrypted with another key than the configured one."
            )
        try:
            return self._cipher.decrypt(nonce, data[start + NONCE_BYTES :], head + place)
        except (InvalidTag, ValueError):
            raise DecryptionFailed(
                "The saved session is damaged: it was changed after it was written."
            ) from None


def decrypt(encryption: Encryption | None, data: bytes) -> bytes:
    """Return the decrypted content.

    Raises:
        DecryptionFailed: No key is configured, or not the right one, or the content was changed.
    """
    if encryption is None:
        raise DecryptionFailed("The saved session is encrypted, and no key is configured.")
    return encryption.decrypt(data)


def cipher(key: bytes) -> AESGCM:
    """Return AES-256-GCM with a key of 32 bytes."""
    # Imported here: most processes encrypt nothing.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
