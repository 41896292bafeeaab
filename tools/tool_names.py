"""The names of tools and prompts in a merged list: prefixes for names of several services, and aliases for refused ones."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from ..sessions.json_codec import JSON
from ..sessions.one_line import one_line

ALIAS_LENGTH: Final = 60
"""Characters of an alias with its prefix. The strictest clients accept 64; a number may follow."""
MAX_LISTED_ALIASES: Final = 5
"""Most aliases that describe_aliases() lists by name."""
MAX_LISTED_RENAMES: Final = 5
"""Most renamed items that describe_renames() lists by name."""

_ACCEPTED: Final = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_HASH_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Alias:
    """A tool listed under an alias because clients reject its own name."""

    original_name: str
    name: str
    """Its name in the list."""


def has_alias(name: str, prefix: str) -> bool:
    """Whether a tool needs an alias, because clients reject its name with the prefix."""
    return _ACCEPTED.fullmatch(prefix + name) is None


def listed_name(name: str, prefix: str) -> str:
    """Return the name of a tool in the list: with the prefix, and as an alias if clients reject it.

    An alias has letters, digits, hyphens and underscores only. It depends on the name and the prefix alone, since it ends
    with a hash of the name; so it stays the same whatever else the service lists.
    """
    if not has_alias(name, prefix):
        return prefix + name
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9-]+", "_", letters).strip("_-") or "tool"
    room = max(ALIAS_LENGTH - len(prefix) - _HASH_DIGITS - 1, 1)
    return f"{prefix}{words[:room].rstrip('_-')}_{digits}"


def with_original_name(definition: JSON, name: str) -> JSON:
    """Return the definition of a tool with a sentence about its own name after its description."""
    description: object = definition.get("description")
    sentence = f"The server calls this tool {_quote(name)}."
    text = f"{description}\n\n{sentence}" if isinstance(description, str) else sentence
    return {**definition, "description": text}


def describe_aliases(aliases: Sequence[Alias]) -> str:
    """Return one line for a log or a report: the aliases of the tools of a service, and the reason."""
    examples = ", ".join(
        f"{_quote(alias.original_name)} is {alias.name}" for alias in aliases[:MAX_LISTED_ALIASES]
    )
    more = (
        f" and {len(aliases) - MAX_LISTED_ALIASES} more"
        if len(aliases) > MAX_LISTED_ALIASES
        else ""
    )
    return f"clients would reject {'this name' if len(aliases) == 1 else 'these names'}: {examples}{more}"


def _quote(name: str) -> str:
    return f'"{one_line(name)[:128]}"'


@dataclass(frozen=True, slots=True)
class Rename:
    """An item listed under a different name because an earlier service, or Statehold itself, uses its own name."""

    service: str
    original_name: str
    """Its name with the configured prefix."""
    name: str
    """Its name in the list."""
    holder: str | None
    """The service that uses the original name; None for Statehold itself."""
    kind: Literal["tool", "prompt"] = "tool"


def describe_renames(renames: Sequence[Rename]) -> str:
    """Return one line for a log or a report: the renamed items of one service, the reason, and the setting to change."""
    service = renames[0].service
    examples = ", ".join(map(_describe_rename, renames[:MAX_LISTED_RENAMES]))
    more = (
        f" and {len(renames) - MAX_LISTED_RENAMES} more"
        if len(renames) > MAX_LISTED_RENAMES
        else ""
    )
    holders = sorted({rename.holder or "Statehold itself" for rename in renames})
    return (
        f"{', '.join(holders)} had {'this name' if len(renames) == 1 else 'these names'} first: {examples}{more}; "
        f"prefix in [services.{service}] names them otherwise"
    )


def describe_renames_by_service(renames: Sequence[Rename]) -> dict[str, str]:
    """Return the line of describe_renames() for each service that has renamed items."""
    by_service: dict[str, list[Rename]] = {}
    for rename in renames:
        by_service.setdefault(rename.service, []).append(rename)
    return {service: describe_renames(each) for service, each in by_service.items()}


def _describe_rename(rename: Rename) -> str:
    # A prompt may have any name.
    original_name, name = (one_line(text)[:128] for text in (rename.original_name, rename.name))
    return f"{'prompt ' if rename.kind == 'prompt' else ''}{original_name} is {name}"


def own_prefix(service: str) -> str:
    """Return the prefix put before a name of a service when another service, or Statehold itself, has the same name."""
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", service) + "_"


def distinct_names(
    wanted_names: Mapping[str, str],
    taken_names: Container[str],
    prefixed_name: Callable[[str], str],
) -> dict[str, str]:
    """Return the name in the list of each item of a service.

    `wanted_names` maps the items to the names that the service alone decides. If one is taken by another service, or by
    Statehold itself, the item gets its `prefixed_name`, with a number if that is taken as well.
    """
    used_names = {*wanted_names.values()}
    names: dict[str, str] = {}
    for item, name in wanted_names.items():
        if name in taken_names:
            candidates = numbered_names(prefixed_name(item))
            name = next(
                each for each in candidates if each not in taken_names and each not in used_names
            )
            used_names.add(name)
        names[item] = name
    return names


def numbered_names(name: str) -> itertools.chain[str]:
    """Return a name, and the same with the numbers from 2."""
    return itertools.chain((name,), (f"{name}_{number}" for number in itertools.count(2)))
