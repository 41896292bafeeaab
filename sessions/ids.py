"""The ids of sessions, and the form of a name that people and agents give."""

from __future__ import annotations

import re
import secrets
from hashlib import blake2s
from typing import Final

ID_PREFIX: Final = "sh_"
"""The beginning of every session id."""
MAX_NAME_LENGTH: Final = 128
"""Most characters of the name of a session."""
NOT_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f/\\]")
"""Matches a character that a name cannot have."""
_NAME: Final = re.compile(rf"(?!{ID_PREFIX}|\.{{1,2}}\Z)[^\x00-\x1f\x7f/\\]{{1,{MAX_NAME_LENGTH}}}")
_NO_NAME: Final = re.compile(
    rf"{NOT_IN_NAMES.pattern}|\A{ID_PREFIX[0]}(?={ID_PREFIX[1:]})|\A\.{{1,2}}\Z"
)
"""Matches the parts of a text that keep it from being a name."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


def new_id() -> str:
    """Return an unguessable session id: `sh_` and 26 characters of base32, 130 random bits. It encodes nothing."""
    return ID_PREFIX + "".join(_ALPHABET[b & 31] for b in secrets.token_bytes(26))


def is_name(text: str) -> bool:
    """Whether a text may be a name: 1 to 128 characters without NOT_IN_NAMES, and neither like an id nor a folder."""
    return _NAME.fullmatch(text) is not None


def name_of_id(foreign: str) -> str:
    """Return the id of a session in another system as a name here: as it is, if it may be a name.

    Characters that a name cannot have are escaped as in a URL. The end of a long id becomes a digest of all of it.
    """
    name = _NO_NAME.sub(_escape, foreign)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = blake2s(foreign.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{name[: MAX_NAME_LENGTH - len(digest) - 1]}~{digest}"


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="replace"))
