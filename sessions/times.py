"""Times and durations as texts, and back. Times are seconds since 1970. Imports little, for quick commands."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_UNITS: Final = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*(s|min|h|d)", re.ASCII)
_RFC_3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d))?", re.ASCII
)
_MAX_EXPIRY_SECONDS: Final = 1e11


def timestamp(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC with milliseconds, None for None."""
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_time(moment: float) -> str:
    """Return a time in RFC 3339, the inverse of parse_time() up to a second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: object) -> float | None:
    """Return a time in ISO 8601 as seconds since 1970, None for anything else. Without a time zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(str(text))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_time(text: str) -> float:
    """Return a date or a time in RFC 3339 as seconds since 1970. A date is its first moment in UTC.

    Raises:
        ValueError: the text is neither.
    """
    seconds = seconds_of(text.upper()) if _RFC_3339.fullmatch(text) else None
    if seconds is None:
        raise ValueError(
            "should be a date or a time such as 2027-01-31 or 2027-01-31T12:00:00Z; correct it"
        )
    return seconds


def parse_expiry(text: str, now: float) -> float:
    """Return the moment of `90d`, `12h`, a date or a time.

    Raises:
        ValueError: the text is none of them, or in the past.
    """
    seconds = duration_of(text) or 0.0
    if 0 < seconds < _MAX_EXPIRY_SECONDS:
        return float(int(now + seconds))
    moment = parse_time(text)
    if moment <= now:
        raise ValueError("is over; give a later time")
    return moment


def duration_of(text: str) -> float | None:
    """Return a duration such as `30d`, `12h` or `45min` in seconds, None for anything else."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def format_duration(seconds: float) -> str:
    """Return a duration as text: `15 minutes`, `7 days`, `never` for 0."""
    if not seconds:
        return "never"
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and math.isclose(seconds % size, 0):
            count = round(seconds / size)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{seconds:g} second{'s' if seconds != 1 else ''}"


def span(seconds: float) -> str:
    """Return a duration, rounded to one unit: `3 min`."""
    seconds = max(0.0, seconds)
    for unit, size in _UNITS.items():
        if seconds >= size * (2 if unit == "d" else 1):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(then: float | None, now: float) -> str:
    """Return the time since a moment as text, empty for never."""
    return "" if then is None else f"{span(now - then)} ago"


def until(then: float | None, now: float) -> str:
    """Return the time until a moment as text, empty for never."""
    if then is None:
        return ""
    return "now" if then <= now else f"in {span(then - now)}"
