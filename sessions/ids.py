"""The ids of sessions."""

from __future__ import annotations

import secrets
from typing import Final

ID_PREFIX: Final = "sh_"
"""The beginning of every session id."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


def new_id() -> str:
    """Return an unguessable session id: `sh_` and 26 characters of base32, 130 random bits. It encodes nothing."""
    return ID_PREFIX + "".join(_ALPHABET[b & 31] for b in secrets.token_bytes(26))


__all__ = ["ID_PREFIX", "new_id"]
