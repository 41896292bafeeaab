"""Names, ids and labels that callers give, and ids of sessions."""

from __future__ import annotations

import re
import secrets
from hashlib import blake2s
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from .errors import InvalidArgument

ID_PREFIX: Final = "sh_"
"""The beginning of every session id."""
MAX_NAME_LENGTH: Final = 128
"""Most characters of the name of a session."""
_NO_NAME: Final = re.compile(
    rf"[\x00-\x1f\x7f/\\]|\A{ID_PREFIX[0]}(?={ID_PREFIX[1:]})|\A\.{{1,2}}\Z"
)
"""Matches the parts of a text that keep it from being a name."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


def new_id() -> str:
    """Return an unguessable session id: `sh_` and 26 characters of base32, 130 random bits. It encodes nothing."""
    return ID_PREFIX + "".join(_ALPHABET[b & 31] for b in secrets.token_bytes(26))


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


LENGTH: Final = 128
"""Most characters of a label."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Control characters, Unicode's category Cc. PostgreSQL cannot keep NUL."""


def label(field_name: str, value: object, length: int = LENGTH) -> str:
    """Return a label unchanged if it may be stored.

    Raises:
        InvalidArgument: `value` is not a text of 1 to `length` characters, or has a control character. The message
            begins with `field_name`.
    """
    if not isinstance(value, str) or not 0 < len(value) <= length or _CONTROL.search(value):
        raise InvalidArgument(
            f"{field_name} should be a text of 1 to {length} characters without control characters."
        )
    return value


def _fit(text: str) -> str:
    if _CONTROL.search(text):
        raise PydanticCustomError("label", "should be a text without control characters")
    return text


Plain = Annotated[str, AfterValidator(_fit)]
"""The same check as a type for models, which limit the length themselves."""
