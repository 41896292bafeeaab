"""Labels that callers give: ids of operations and runs, the role of a message, the user or team of a session.

Labels are looked up, so they are stored unchanged. Characters that one database cannot store are refused for all of them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from .errors import InvalidArgument

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
