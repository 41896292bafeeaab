"""Merges the tables of services of all sources, with variables and paths replaced, service by service."""

from __future__ import annotations

import io
import os
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ...access.config.types import ConfigError
from ...sessions.json_codec import JSON
from ...tools.foreign_file import SETTINGS_BYTES, read_foreign
from .client_entries import ENV_FILE, transport_name
from .mistakes import Layer
from .variables import Location, expand, unreadable

_EXPANDED_SETTINGS: Final = (
    *("command", "args", "cwd", "url", "headers"),
    *("executable", "cdp_endpoint", "cdp_headers", "ws_endpoint", "init_script", "init_page"),
    *("secrets", "secrets_command", "storage_state", "http_credentials"),
    *("allow", "block", "proxy", "uploads", "output_dir", "key"),
)
"""The settings of a service in which variables are replaced, besides `env`."""


@dataclass(slots=True)
class MergedServices:
    """The services of all sources by name, not validated yet, and the first problem of each that has one."""

    entries: JSON = field(default_factory=dict[str, Any])
    problems: dict[str, str] = field(default_factory=dict[str, str])


def merge_services(
    layers: list[Layer], environ: Mapping[str, str], restrictions: Mapping[str, str]
) -> MergedServices:
    """Merge the services of the layers, the strongest first. So variables and paths in overridden values need not exist.

    `restrictions` are problems of services in the file of a client.
    """
    merged = MergedServices(problems=dict(restrictions))
    for layer in layers:
        services = layer.values.get("services")
        if isinstance(services, dict):
            for name, service in cast(JSON, services).items():
                try:
                    _merge_service(merged.entries, name, service, layer, environ)
                except ConfigError as error:
                    merged.problems.setdefault(name, str(error))
                except RecursionError:
                    where = Location(layer.name, ("services", name))
                    merged.problems.setdefault(name, f"{where}: is nested too deeply; correct it")
    for name in list(merged.problems):
        if is_disabled(merged.entries.get(name)):
            del merged.problems[name]
    return merged


def is_disabled(service: object) -> bool:
    return isinstance(service, dict) and is_true(cast(JSON, service).get("disabled"))


def is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on")


def add_missing(into: JSON, values: JSON) -> None:
    """Add missing values, table by table."""
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.setdefault(key, {}), dict):
            add_missing(into[key], cast(JSON, value))
        else:
            into.setdefault(key, value)


def _merge_service(
    into: JSON, name: str, service: object, layer: Layer, environ: Mapping[str, str]
) -> None:
    """Add the settings of one layer to a service.

    Raises:
        ConfigError: one of them cannot be read. The service has all the settings nevertheless.
    """
    if not isinstance(service, dict):
        into.setdefault(name, service)
        return
    merged = into.setdefault(name, {})
    if not isinstance(merged, dict):
        return
    merged = cast(JSON, merged)
    additions = _missing_settings(_with_type(cast(JSON, service)), merged)
    env_file = additions.pop(ENV_FILE, None) if layer.of_client else None
    try:
        if not is_true(merged.get("disabled", additions.get("disabled"))):
            location = Location(layer.name, ("services", name))
            _expand(additions, merged, location, layer, environ)
            _resolve(additions, layer)
            if env_file is not None:
                _read_env_file(additions, merged, env_file, location, layer, environ)
    finally:
        add_missing(merged, additions)


def _expand(
    additions: JSON, merged: JSON, where: Location, layer: Layer, environ: Mapping[str, str]
) -> None:
    """Replace the variables. Those of the entry's own `env` count as well, as for programs that replace them themselves."""
    own_env = ChainMap(_texts_of(merged.get("env")), _texts_of(additions.get("env")))
    literals = {name: text for name, text in own_env.items() if "${" not in text}
    if "env" in additions:
        known = ChainMap(literals, cast("dict[str, str]", environ))
        additions["env"] = expand(additions["env"], where.below("env"), layer.base, known)
    own_env = {**_texts_of(additions.get("env")), **_texts_of(merged.get("env"))}
    known = ChainMap(own_env, cast("dict[str, str]", environ))
    for key in _EXPANDED_SETTINGS:
        if key in additions:
            additions[key] = expand(additions[key], where.below(key), layer.base, known)


def _read_env_file(
    additions: JSON,
    merged: JSON,
    file: object,
    where: Location,
    layer: Layer,
    environ: Mapping[str, str],
) -> None:
    """Add the variables of a file of NAME=VALUE lines; `env` wins.

    Raises:
        ConfigError: there is no such file, or it is no text.
    """
    where = where.below(ENV_FILE)
    if not isinstance(file, str):
        raise ConfigError(f"{where}: should be the path of a file; correct it")
    path = layer.path(expand(file, where, layer.base, environ))
    # Imported here: most files of clients name none.
    from dotenv import dotenv_values

    try:
        text = read_foreign(path, SETTINGS_BYTES).decode("utf-8-sig")
        values = dotenv_values(stream=io.StringIO(text), interpolate=False)
    except FileNotFoundError:
        raise ConfigError(
            f"{where}: there is no file {path}; make it, or correct the path"
        ) from None
    except (UnicodeDecodeError, OSError) as error:
        raise unreadable(path, where, error) from None
    env = additions.setdefault("env", {})
    if isinstance(env, dict):
        given = cast(JSON, env).keys() | _texts_of(merged.get("env")).keys()
        additions["env"] = cast(JSON, env) | {
            name: text for name, text in values.items() if text is not None and name not in given
        }


def _texts_of(table: object) -> dict[str, str]:
    items = cast(JSON, table).items() if isinstance(table, dict) else ()
    return {name: text for name, text in items if isinstance(text, str)}


def _with_type(service: JSON) -> JSON:
    settings = dict(service)
    if "transport" in settings and "type" not in settings:
        settings["type"] = settings.pop("transport")
    if isinstance(settings.get("type"), str):
        settings["type"] = transport_name(settings["type"])
    return settings


def _missing_settings(service: JSON, merged: JSON) -> JSON:
    additions: JSON = {}
    for key, value in service.items():
        if (
            key in ("env", "headers", "cdp_headers", "http_credentials")
            and isinstance(value, dict)
            and isinstance(merged.get(key), dict)
        ):
            additions[key] = {k: v for k, v in cast(JSON, value).items() if k not in merged[key]}
        elif key not in merged:
            additions[key] = value
    return additions


def _resolve(service: JSON, layer: Layer) -> None:
    cwd = service.get("cwd")
    if isinstance(cwd, str) and not cwd.startswith("{dir}"):
        service["cwd"] = str(layer.path(cwd))
    command = service.get("command")
    if isinstance(command, str) and not command.startswith("{dir}"):
        service["command"] = program_path(command, layer)
    if isinstance(service.get("executable"), str):
        service["executable"] = program_path(service["executable"], layer)
    for key in ("output_dir", "secrets", "storage_state"):
        if isinstance(service.get(key), str):
            service[key] = str(layer.path(service[key]))
    for key in ("uploads", "init_script", "init_page"):
        if paths := _texts(service.get(key)):
            service[key] = [str(layer.path(path)) for path in paths]
    if words := _texts(service.get("secrets_command")):
        service["secrets_command"] = [program_path(words[0], layer), *words[1:]]


def _texts(value: object) -> list[str]:
    """Return the texts of a list, also of one that an environment variable gives as `a,b`; empty if it is no such list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    items = cast("list[object]", value) if isinstance(value, list) else []
    texts = [item for item in items if isinstance(item, str)]
    return texts if len(texts) == len(items) else []


def program_path(command: str, layer: Layer) -> str:
    """Return a path as an absolute one. A name without a folder is returned unchanged: PATH is searched for it later."""
    is_path = os.sep in command or command.startswith("~")
    return str(layer.path(command)) if is_path else command
