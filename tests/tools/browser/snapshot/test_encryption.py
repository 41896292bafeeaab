"""The encryption of snapshots with a configured key."""

from __future__ import annotations

import pytest

from statehold.sessions.services import Snapshot
from statehold.sessions.store.sealing.encryption import DecryptionFailed, Encryption, decrypt
from statehold.tools.browser.snapshot.model import ContextSnapshot

KEY = "a key of sufficient length"


@pytest.fixture(scope="module")
def encryption() -> Encryption:
    """The encryption of all these tests: deriving its key takes long on purpose."""
    return Encryption(KEY)


def test_content_is_decrypted_with_the_same_key_only(encryption: Encryption) -> None:
    sealed = encryption.encrypt(b"content")
    assert b"content" not in sealed
    assert Encryption(KEY).decrypt(sealed) == b"content"
    with pytest.raises(DecryptionFailed, match="another key"):
        Encryption(KEY + "!").decrypt(sealed)


def test_the_same_content_is_never_encrypted_the_same_way(encryption: Encryption) -> None:
    assert encryption.encrypt(b"content") != encryption.encrypt(b"content")


@pytest.mark.parametrize("at", [0, 5, 10, 25, -1])
def test_a_changed_byte_is_noticed(encryption: Encryption, at: int) -> None:
    sealed = bytearray(encryption.encrypt(b"content"))
    sealed[at] ^= 1
    with pytest.raises(DecryptionFailed):
        encryption.decrypt(bytes(sealed))


@pytest.mark.parametrize("length", [0, 3, 7, 8, 15, 20, 35])
def test_missing_bytes_are_noticed(encryption: Encryption, length: int) -> None:
    with pytest.raises(DecryptionFailed):
        encryption.decrypt(encryption.encrypt(b"content")[:length])


def test_nothing_is_restored_without_a_key(encryption: Encryption) -> None:
    snapshot = ContextSnapshot(lost=["x"]).to_snapshot(encryption)
    with pytest.raises(DecryptionFailed, match="no key is configured"):
        ContextSnapshot.from_snapshot(snapshot)
    with pytest.raises(DecryptionFailed):
        decrypt(None, b"")
    assert not DecryptionFailed("x").retryable


def test_a_snapshot_from_before_there_was_a_key_is_still_read(encryption: Encryption) -> None:
    snapshot = ContextSnapshot(lost=["x"])
    assert ContextSnapshot.from_snapshot(snapshot.to_snapshot(), encryption) == snapshot
    assert ContextSnapshot.from_snapshot(Snapshot({"version": 2}), encryption).lost != []


def test_a_short_key_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="openssl rand"):
        Encryption("short")


def test_a_key_is_never_shown(encryption: Encryption) -> None:
    assert KEY not in repr(encryption)
