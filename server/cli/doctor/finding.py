"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `warn` may stay as it is, `fail` may not."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""


__all__ = ["Finding"]
