"""The sources of the settings: flags, then `STATEHOLD_*`, then the TOML file, then a client's file, then the defaults.

Every mistake becomes a message that names the source, the setting and the remedy: that of an unusable service, which leaves
the others running, or a ConfigError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ...access.config.types import ConfigError
from ...sessions.json_codec import JSON
from ...tools.browser.config import BrowserConfig
from ...tools.browser.session import output_folder
from ...tools.processes.procfs import MARK
from ...tools.upstream.config import UnusableConfig, UpstreamConfig
from .client_files import ClientFile, parse_toml, read_client_file, read_text
from .data_folder import CONFIG_VARIABLE, SERVICES_VARIABLE
from .mistakes import FLAGS, Layer, describe, nearest
from .model import PREFIX, Config, ServiceConfig, is_name_of_service
from .service_layers import (
    MergedServices,
    add_missing,
    is_disabled,
    is_true,
    merge_services,
    program_path,
)
from .variables import Location, expand

_OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, SERVICES_VARIABLE, MARK})
# Kubernetes sets these in every pod if there is a Service named "statehold".
_KUBERNETES_VARIABLE = re.compile(r"STATEHOLD(_\w+)?_(SERVICE_(HOST|PORT\w*)|PORT_\d+_\w+)$")


def load(
    *,
    config: str | Path | None = None,
    services: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    is_program: bool = False,
) -> Config:
    """Read the settings from all sources. A service with a wrong setting is an UnusableConfig, except with `strict`.

    `is_program`: a Python program gives the files as arguments, and an error names these instead of flags.

    Raises:
        ConfigError: another setting is wrong. The error names the first wrong one.
    """
    environ = os.environ if environ is None else environ
    again = partial(
        load,
        config=config,
        services=services,
        flags=flags,
        environ=environ,
        is_program=is_program,
    )
    file = None
    _refuse_unknown(environ)
    flag = "" if is_program else "--"
    config_named_by = f"{flag}config" if config else CONFIG_VARIABLE
    services_named_by = f"{flag}services" if services else SERVICES_VARIABLE
    config = config or environ.get(CONFIG_VARIABLE)
    services = services or environ.get(SERVICES_VARIABLE)
    layers = [
        Layer("flags", Path.cwd(), dict(flags or {}), of_client=True),
        Layer("environment", Path.cwd(), _read_environment(environ)),
    ]
    if config:
        file = Path(config).expanduser().absolute()
        values = parse_toml(file, read_text(file, config_named_by))
        layers.append(Layer(str(config), file.parent, values))
    client_file = ClientFile()
    if services:
        path = Path(services).expanduser().absolute()
        client_file = read_client_file(path, services_named_by)
        values = {"services": client_file.services}
        layers.append(Layer(str(services), path.parent, values, of_client=True))
    restrictions = {
        name: problem
        for name, problem in client_file.problems.items()
        if not any(_chooses_tools(layer, name) for layer in layers if not layer.of_client)
    }
    return _validate(layers, environ, restrictions).with_source(client_file.notes, file, again)


def _chooses_tools(layer: Layer, name: str) -> bool:
    """Whether our own settings say which tools of a service are offered, in place of the client's file."""
    return any(layer.has(("services", name, key)) for key in ("include", "exclude"))


def load_for(arguments: object) -> Config:
    """Load the settings for a command line.

    Raises:
        ConfigError: a setting is wrong.
    """
    flags: dict[str, Any] = {}
    for key, flag in FLAGS.items():
        value = getattr(arguments, flag.removeprefix("--").replace("-", "_"), None)
        if value is not None:
            *section, name = key.split(".")
            into = flags.setdefault(section[0], {}) if section else flags
            into[name] = value
    return load(
        config=getattr(arguments, "config", None),
        services=getattr(arguments, "services", None),
        flags=flags,
    )


def _validate(
    layers: list[Layer], environ: Mapping[str, str], restrictions: Mapping[str, str]
) -> Config:
    values = _merge(layers, environ)
    services = merge_services(layers, environ, restrictions)
    problems = services.problems
    is_strict = is_true(values.get("strict"))
    if is_strict and problems:
        raise ConfigError(next(iter(problems.values())))
    while True:
        config, details = _try(_with_services(values, services, layers))
        if config is not None:
            break
        found, others = _by_service(details)
        if is_strict or others or found.keys() <= problems.keys():
            raise ConfigError(describe(details if is_strict else others or details, layers))
        problems |= {name: describe(mistakes, layers) for name, mistakes in found.items()}
    message = _find_wrong_path(config, layers)
    if message is not None:
        raise ConfigError(message)
    return config


def _try(values: JSON) -> tuple[Config | None, list[ErrorDetails]]:
    """Return the settings, or their mistakes. The error itself stays here: it would show its input, secrets included."""
    try:
        return Config.model_validate(values), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _by_service(
    details: list[ErrorDetails],
) -> tuple[dict[str, list[ErrorDetails]], list[ErrorDetails]]:
    """Return the mistakes of each service, and those of other settings."""
    found: dict[str, list[ErrorDetails]] = {}
    others: list[ErrorDetails] = []
    for detail in details:
        key = detail.get("ctx", {}).get("key") or detail["loc"]
        if key[0:1] == ("services",) and len(key) > 1:
            found.setdefault(str(key[1]), []).append(detail)
        else:
            others.append(detail)
    return found, others


def _read_environment(environ: Mapping[str, str]) -> JSON:
    names = {name for name in map(str.upper, environ) if name.startswith(PREFIX)}
    if names <= _OTHER_VARIABLES:
        return {}
    # Imported here: pydantic-settings takes a twentieth of the start of a process.
    from .environment import read_environment

    return read_environment(environ)


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    setting_variables = {f"{PREFIX}{name}".upper() for name in Config.model_fields}
    for variable, value in environ.items():
        name = variable.upper()
        if not name.startswith(PREFIX) or name.split("__")[0] in setting_variables:
            continue
        if name in _OTHER_VARIABLES or _KUBERNETES_VARIABLE.match(name):
            continue
        if name == "STATEHOLD_PORT" and "://" in value:
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        hint = nearest(key, Layer("environment", Path(), {}))
        raise ConfigError(
            f"{variable}: is not a setting; {hint or 'see docs/reference/configuration.md'}"
        )


def _merge(layers: list[Layer], environ: Mapping[str, str]) -> JSON:
    """Merge all settings but the services, the strongest layer first."""
    result: JSON = {}
    for layer in layers:
        add_missing(result, _with_paths(layer, environ))
    return result


def _with_services(values: JSON, services: MergedServices, layers: list[Layer]) -> JSON:
    """Add the services to the other settings. Something else than a table is left for the check of the settings."""
    given = [
        layer.values["services"] for layer in layers if layer.values.get("services") is not None
    ]
    if not given:
        return values
    wrong = next((table for table in given if not isinstance(table, dict)), None)
    if wrong is not None:
        return {**values, "services": wrong}
    entries: JSON = {}
    for name, entry in services.entries.items():
        problem = services.problems.get(name)
        if problem is None:
            entries[name] = entry
        else:
            entries[_listable(name, {*services.entries, *entries})] = UnusableConfig.of(
                entry, problem, disabled=is_disabled(entry)
            )
    return {**values, "services": entries}


def _listable(name: str, taken: Collection[str]) -> str:
    """Return a name under which a service can be listed: its own, unless that is the mistake."""
    if is_name_of_service(name):
        return name
    return next(other for n in count(1) if (other := f"unnamed {n}") not in taken)


def _with_paths(layer: Layer, environ: Mapping[str, str]) -> JSON:
    values = {key: value for key, value in layer.values.items() if key != "services"}
    if isinstance(values.get("data"), str):
        values["data"] = str(layer.path(values["data"]))
    if isinstance(server := values.get("server"), dict):
        server = values["server"] = dict(cast(JSON, server))
        if isinstance(tokens := server.get("tokens"), str):
            server["tokens"] = str(layer.path(tokens))
        if isinstance(tls := server.get("tls"), dict):
            server["tls"] = {
                key: str(layer.path(value)) if isinstance(value, str) else value
                for key, value in cast(JSON, tls).items()
            }
    if isinstance(store := values.get("store"), dict):
        store = values["store"] = dict(cast(JSON, store))
        if isinstance(file := store.get("url_file"), str):
            store["url_file"] = str(layer.path(file))
        if "url" in store:
            where = Location(layer.name, ("store", "url"))
            store["url"] = expand(store["url"], where, layer.base, environ)
    if isinstance(sealing := values.get("sealing"), dict):
        where = Location(layer.name, ("sealing",))
        values["sealing"] = expand(sealing, where, layer.base, environ)
    if isinstance(cluster := values.get("cluster"), dict):
        cluster = values["cluster"] = dict(cast(JSON, cluster))
        if isinstance(file := cluster.get("keys_file"), str):
            cluster["keys_file"] = str(layer.path(file))
        if "keys" in cluster:
            where = Location(layer.name, ("cluster", "keys"))
            cluster["keys"] = expand(cluster["keys"], where, layer.base, environ)
    if "notify" in values:
        where = Location(layer.name, ("notify",))
        values["notify"] = expand(values["notify"], where, layer.base, environ)
    if isinstance(logins := values.get("logins"), dict):
        where = Location(layer.name, ("logins",))
        logins = values["logins"] = expand(logins, where, layer.base, environ)
        for login in logins.values():
            if isinstance(login, dict):
                _resolve_login(cast(JSON, login), layer)
    if isinstance(auth := values.get("auth"), dict):
        auth = values["auth"] = dict(cast(JSON, auth))
        for key in ("issuers", "console", "facade"):
            if key in auth:
                where = Location(layer.name, ("auth", key))
                auth[key] = expand(auth[key], where, layer.base, environ)
    return values


def _resolve_login(login: JSON, layer: Layer) -> None:
    if isinstance(file := login.get("file"), str):
        login["file"] = str(layer.path(file))
    command = login.get("command")
    if isinstance(command, list) and command and isinstance(command[0], str):
        command[0] = program_path(command[0], layer)


def _find_wrong_path(config: Config, layers: list[Layer]) -> str | None:
    def at(*key: str) -> str:
        return next((layer.spell(key) for layer in layers if layer.has(key)), ".".join(key))

    above = next(path for path in (config.data, *config.data.parents) if path.exists())
    if not above.is_dir():
        return (
            f"{at('data')}: {above} is not a folder; give a folder, it is made when it is missing"
        )
    # Without `strict`, such a service is unavailable until the path exists.
    for name, service in config.services.items() if config.strict else ():
        problem = None if service.disabled else find_missing_path(service)
        if problem is not None:
            return f"{at('services', name, problem[0])}: {problem[1]}"
    return None


def find_missing_path(service: ServiceConfig) -> tuple[str, str] | None:
    """Return the first setting whose path does not exist or cannot be read, with the problem and the remedy."""
    if isinstance(service, BrowserConfig):
        return output_folder.find_missing_path(service)
    return _find_in_upstream(service)


def _find_in_upstream(service: UpstreamConfig) -> tuple[str, str] | None:
    cwd = service.cwd
    if cwd and not _has_placeholder(cwd) and not Path(cwd).is_dir():
        return "cwd", f"there is no folder {cwd}; make it, or correct the path"
    command = service.command
    if (
        command
        and os.sep in command
        and not _has_placeholder(command)
        and not Path(command).is_file()
    ):
        return "command", f"there is no program {command}; correct the path"
    return None


def _has_placeholder(path: str) -> bool:
    """Whether a path has placeholders, whose values differ for each session."""
    return any(name in path for name in ("{dir}", "{session_id}", "{session_name}"))
