"""The options of `statehold principals limit`: their values as limits, and limits as its tables show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from ...access.config.policies import PolicySettings
from ...sessions.json_codec import JSON
from ...sessions.principals.limits import FIELDS
from ...sessions.wording import did_you_mean
from ..command_line import CommandLine
from ..errors import CommandError
from ..sessions.filters import parse_duration

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kmg]i?)b?", re.IGNORECASE)
_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
}


def parse_changes(arguments: CommandLine) -> dict[str, Any]:
    """Return the limits that a command line sets, and None for those that it removes.

    Raises:
        CommandError: one of them is malformed.
    """
    removed = [name.replace("-", "_") for name in arguments.remove or ()]
    names = list(FIELDS) if "all" in removed else removed
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        hint = did_you_mean(unknown[0], FIELDS)
        text = f"--remove: {unknown[0]} is none of {', '.join(FIELDS)} and all.{hint}"
        raise CommandError.usage(text.replace("_", "-"))
    changes: dict[str, Any] = dict.fromkeys(names)
    stored = arguments.stored_bytes
    texts = {
        "sessions": arguments.sessions,
        "stored_bytes": None if stored is None else _parse_size(stored),
        "calls_in_flight": arguments.calls_in_flight,
        "rate": None if arguments.rate is None else _parse_rate(arguments.rate, "--rate"),
        "tool_rates": dict(map(_parse_tool_rate, arguments.tool_rate or ())) or None,
        "idle": _parse_time(arguments.idle, "--idle"),
        "lifetime": _parse_time(arguments.lifetime, "--lifetime"),
        "services": _parse_list(arguments.allow_services),
        "browser_hosts": _parse_list(arguments.allow_hosts),
    }
    values = {key: value for key, value in texts.items() if value is not None}
    try:
        PolicySettings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"][:1]))
        raise CommandError.usage(f"{where}: {first['msg']}") from None
    return changes | values


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise CommandError.usage("--stored-bytes: should be a size such as 500MiB or 0")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _parse_rate(text: str, flag: str) -> JSON:
    calls, separator, burst = text.partition(":")
    try:
        rate: JSON = {"calls_per_minute": float(calls)}
        return {**rate, "burst": int(burst)} if separator else rate
    except ValueError:
        raise CommandError.usage(f"{flag}: should be calls a minute, such as 60 or 60:10") from None


def _parse_tool_rate(text: str) -> tuple[str, JSON]:
    pattern, separator, rate = text.rpartition("=")
    if not separator or not pattern:
        raise CommandError.usage("--tool-rate: should be such as browser/browser_navigate=20:5")
    return pattern, _parse_rate(rate, "--tool-rate")


def _parse_time(text: str | None, flag: str) -> float | None:
    return None if text is None else 0.0 if text == "0" else parse_duration(text, flag)


def _parse_list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def limit_words(key: str, value: Any) -> str:
    """Return a limit as the tables show it."""
    if key in ("services", "browser_hosts"):
        return "any" if value is None else ", ".join(value) or "none"
    if key == "tool_rates":
        return ", ".join(f"{name}: {_rate(rate)}" for name, rate in value.items()) or "no limit"
    if key == "rate" and value:
        return _rate(value)
    if not value:
        return "no limit"
    if key == "stored_bytes":
        return size_words(value)
    return f"{value:g} s" if key in ("idle", "lifetime") else str(value)


def _rate(rate: Mapping[str, Any]) -> str:
    burst = f", {rate['burst']} at once" if rate.get("burst") else ""
    return f"{rate['calls_per_minute']:g} a minute{burst}" if rate["calls_per_minute"] else "none"


def size_words(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} B"
