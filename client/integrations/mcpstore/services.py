"""Service descriptions in MCPStore's forms: a name with a URL or a command, a list of them, any client's `mcpServers` table,
or the built-in browser.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ...errors import InvalidArgument

if TYPE_CHECKING:
    from ....sessions.json_codec import JSON

ServiceDescriptions: TypeAlias = (
    Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | os.PathLike[str]
)
"""The argument of add_service(): one service, a list of them, an `mcpServers` table, or a file with one; `browser` is the
built-in browser."""
BROWSER: Final = "browser"

_ADVICE = 'Give {"name": ..., "url": ...}, {"name": ..., "command": ..., "args": [...]}, or an "mcpServers" table.'


def read_descriptions(descriptions: ServiceDescriptions) -> dict[str, JSON]:
    """Return the described services, by name.

    Raises:
        InvalidArgument: it is none of the known forms.
        ConfigError: it is a file that cannot be read.
    """
    if descriptions == BROWSER:
        return {BROWSER: {"type": BROWSER}}
    if isinstance(descriptions, str | os.PathLike):
        from ....server.config.client_files import read_client_file

        return read_client_file(Path(descriptions).expanduser(), "the path").services
    if isinstance(descriptions, Mapping):
        return _read_one(descriptions)
    services: dict[str, JSON] = {}
    for each in descriptions:
        services |= _read_one(each)
    return services


def _read_one(description: Mapping[str, Any]) -> dict[str, JSON]:
    table: object = description.get("mcpServers")
    if isinstance(table, Mapping):
        entries = cast("Mapping[str, Any]", table)
    elif isinstance(description.get("name"), str):
        entries = {
            description["name"]: {key: value for key, value in description.items() if key != "name"}
        }
    elif description and all(isinstance(entry, Mapping) for entry in description.values()):
        entries = description
    else:
        raise InvalidArgument("This describes no service.", recovery=_ADVICE)
    return {name: _entry(name, entry) for name, entry in entries.items()}


def _entry(name: str, entry: object) -> JSON:
    """Return an entry with its keys under our names. Keys that neither we nor other MCP clients use are left out."""
    from ....server.config.client_entries import read_entry
    from ....tools.upstream.config import UpstreamConfig

    if not isinstance(entry, Mapping):
        raise InvalidArgument(f"{name[:128]!r} is not described by an object.", recovery=_ADVICE)
    values = {str(key): value for key, value in cast("Mapping[str, Any]", entry).items()}
    if values.get("type") == BROWSER or (
        name == BROWSER and {"type", "transport", "command", "url"}.isdisjoint(values)
    ):
        return {**values, "type": BROWSER}
    if "cwd" not in values and "working_dir" in values:
        values["cwd"] = values["working_dir"]
    ours = {key: value for key, value in values.items() if key in UpstreamConfig.model_fields}
    read = read_entry(values)
    if read.problem is not None:
        raise InvalidArgument(f"{name[:128]!r} cannot be used: {read.problem}.", recovery=_ADVICE)
    return {**ours, **read.settings}


__all__ = ["ServiceDescriptions", "read_descriptions"]
