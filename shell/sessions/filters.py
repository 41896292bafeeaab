"""Values of options of `statehold sessions`."""

from __future__ import annotations

import re

from ...server.operate import sessions
from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ..errors import CommandError


def parse_duration(text: str, flag: str) -> float:
    """Return a duration such as `30d`, `12h` or `45min` in seconds.

    Raises:
        CommandError: the text is no such duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)", text.strip())
    if match is None:
        raise CommandError.usage(f"{flag}: should be a time such as 30d, 12h, 45min or 90s")
    return float(match[1]) * {"s": 1, "min": 60, "h": 3600, "d": 86_400}[match[2]]


def parse_metadata(text: str) -> JSON:
    """Read the value of --metadata.

    Raises:
        CommandError: it is no JSON object.
    """
    try:
        return sessions.parse_metadata(text)
    except InvalidArgument as error:
        raise CommandError.usage(error.message) from None
