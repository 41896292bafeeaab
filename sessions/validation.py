"""Labels that callers give: the ids of operations and runs, the role of a message, whose a session is.

They are looked up, so they are kept as they are, and what not every database can keep is refused on all of them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from .errors import InvalidArgument

LENGTH: Final = 128
"""Characters of a label at most."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Control characters, Unicode's category Cc. PostgreSQL cannot keep NUL."""


def label(what: str, given: object, length: int = LENGTH) -> str:
    """Return a label as it may be stored: exactly as it is.

    Raises:
        InvalidArgument: naming `what`: it is no text of 1 to `length` characters, or has a control character.
    """
    if not isinstance(given, str) or not 0 < len(given) <= length or _CONTROL.search(given):
        raise InvalidArgument(
            f"{what} should be a text of 1 to {length} characters without control characters."
        )
    return given


def _fit(text: str) -> str:
    if _CONTROL.search(text):
        raise PydanticCustomError("label", "should be a text without control characters")
    return text


Plain = Annotated[str, AfterValidator(_fit)]
"""The same for a model, which says itself how long it may be."""


__all__ = ["LENGTH", "Plain", "label"]
