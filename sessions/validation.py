"""Texts and metadata that callers give: names, and labels such as the id of an operation.

Labels are looked up, so they are stored unchanged. Characters that one database cannot store are refused for all of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from .errors import InvalidArgument
from .ids import ID_PREFIX, is_name
from .records import LABELS
from .state.patch import size_of

LENGTH: Final = 128
"""Most characters of a label."""
METADATA_LIMIT = 16_384
"""Bytes of a session's metadata as JSON text."""
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


def validate_name(name: str, field_name: str) -> str:
    """Return a name in Unicode's normal form C, as it may be stored.

    Raises:
        InvalidArgument: it is empty, longer than 128 characters, has a slash or a control character, is `.` or `..`, or
            looks like an id.
    """
    name = unicodedata.normalize("NFC", name)
    if not is_name(name):
        raise InvalidArgument(
            f"{field_name} must have 1 to 128 characters without slashes or control characters, "
            f"and not start with {ID_PREFIX!r}."
        )
    return name


def validate_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata unchanged if it may be stored.

    Raises:
        InvalidArgument: it is not JSON, or too large.
    """
    try:
        size = size_of(metadata)
    except ValueError as error:
        raise InvalidArgument(f"metadata is not JSON: {error}.") from None
    if size > METADATA_LIMIT:
        raise InvalidArgument(f"metadata takes more than {METADATA_LIMIT} bytes.")
    return metadata


def validate_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels unchanged if they may be stored.

    Raises:
        InvalidArgument: one is empty, longer than 128 characters, has a control character, or is not in LABELS.
    """
    for name, value in labels.items():
        if name not in LABELS:
            raise InvalidArgument(f"{name:.50} is none of {', '.join(LABELS)}.")
        label(name, value)
    return dict(labels)
