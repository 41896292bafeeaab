"""The filters with which a command selects sessions, besides their names."""

from __future__ import annotations

import json
import re
from typing import cast

from ....sessions.errors import InvalidArgument
from ....sessions.json_codec import JSON
from ....sessions.records import LABELS
from ....tools.own.definition import parse_time
from ..command_line import CommandLine
from ..errors import CommandError


def filter_fields(arguments: CommandLine) -> JSON:
    """Return the fields of a list's filter.

    Raises:
        CommandError: a field is malformed.
    """
    flags = {label: getattr(arguments, label.removesuffix("_id")) for label in LABELS}
    labels = {label: value for label, value in flags.items() if value is not None}
    try:
        since = parse_time(arguments.since, "--since")
    except InvalidArgument as error:
        raise CommandError.usage(error.message) from None
    return {
        "name_prefix": arguments.name,
        "labels": labels or None,
        "metadata": None if arguments.metadata is None else parse_metadata(arguments.metadata),
        "updated_since": since,
        "query": arguments.query,
    }


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
        metadata: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError.usage(f"--metadata: this is not JSON ({error}); quote it") from None
    if not isinstance(metadata, dict):
        raise CommandError.usage("--metadata: should be an object, in braces")
    return cast("JSON", metadata)


__all__ = ["filter_fields", "parse_duration", "parse_metadata"]
