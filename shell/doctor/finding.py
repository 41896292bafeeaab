"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A `warn` may stay as it is, a `fail` may not."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
