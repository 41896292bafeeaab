"""The sources of the settings: flags, then `STATEHOLD_*`, then the TOML file, then a client's file, then the defaults.

Every mistake becomes a ConfigError that names the source, the setting and the remedy.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ...sessions.json_codec import JSON
from ...tools.browser.config import BrowserConfig
from ...tools.processes.procfs import MARK
from ...tools.upstream.config import UpstreamConfig
from .client_files import expand, read_services, read_text, transport_name
from .data_folder import CONFIG_VARIABLE, SERVICES_VARIABLE
from .messages import FLAGS, Layer, describe, nearest
from .model import PREFIX, Config, ConfigError

_OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, SERVICES_VARIABLE, MARK})
# Kubernetes sets these in every pod if there is a Service named "statehold".
_KUBERNETES_VARIABLE = re.compile(r"STATEHOLD(_\w+)?_(SERVICE_(HOST|PORT\w*)|PORT_\d+_\w+)$")


_EXPANDED_SETTINGS = (
    *("command", "args", "env", "cwd", "url", "headers"),
    *("executable", "cdp_endpoint", "cdp_headers", "ws_endpoint", "init_script", "init_page"),
    *("secrets", "secrets_command", "storage_state", "http_credentials"),
    *("allow", "block", "proxy", "uploads", "output_dir", "key"),
)
"""The settings of a service in which variables are replaced."""


def load(
    *,
    config: str | Path | None = None,
    services: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read the settings from all sources.

    Raises:
        ConfigError: a setting is wrong. The error names the first wrong one.
    """
    environ = os.environ if environ is None else environ
    _refuse_unknown(environ)
    config_named_by = "--config" if config else CONFIG_VARIABLE
    config = config or environ.get(CONFIG_VARIABLE)
    services = services or environ.get(SERVICES_VARIABLE)
    layers = [
        Layer("flags", Path.cwd(), dict(flags or {})),
        Layer("environment", Path.cwd(), _read_environment(environ)),
    ]
    if config:
        path = Path(config).expanduser().absolute()
        layers.append(Layer(str(config), path.parent, _read_toml(path, config_named_by)))
    if services:
        path = Path(services).expanduser().absolute()
        layers.append(Layer(str(services), path.parent, {"services": read_services(path)}))
    return _validate(_merge(layers, environ), layers)


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


def _validate(values: JSON, layers: list[Layer]) -> Config:
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        message = describe(error, layers)
    else:
        message = _find_wrong_path(config, layers)
        if message is None:
            return config
    # Raised outside of the handler: a chained validation error would show its input, secrets included.
    raise ConfigError(message)


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
        raise ConfigError(f"{variable}: is not a setting; {hint or 'see docs/configuration.md'}")


def _read_toml(path: Path, named_by: str) -> JSON:
    text = read_text(path, named_by)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        remedy = (
            "it looks like JSON: give a client's file as --services"
            if text.lstrip().startswith("{")
            else "correct the TOML"
        )
        position = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
        location = (
            f"line {position[1]}, column {position[2]}"
            if position and position[1]
            else "end of file"
        )
        problem = str(error).split(" (at ")[0]
        raise ConfigError(f"{path}: {location}: {problem}; {remedy}") from None


def _merge(layers: list[Layer], environ: Mapping[str, str]) -> JSON:
    """Merge the layers, the strongest first. So variables and paths in overridden values need not exist."""
    result: JSON = {}
    for layer in layers:
        _add_missing(result, _with_paths(layer, environ))
        services = layer.values.get("services")
        if isinstance(services, dict):
            into = result.setdefault("services", {})
            for name, service in cast(JSON, services).items():
                if isinstance(into, dict):
                    _merge_service(cast(JSON, into), name, service, layer, environ)
        elif services is not None:
            result.setdefault("services", services)
    return result


def _add_missing(into: JSON, values: JSON) -> None:
    """Add missing values, table by table."""
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.setdefault(key, {}), dict):
            _add_missing(into[key], cast(JSON, value))
        else:
            into.setdefault(key, value)


def _with_paths(layer: Layer, environ: Mapping[str, str]) -> JSON:
    values = {key: value for key, value in layer.values.items() if key != "services"}
    if isinstance(values.get("data"), str):
        values["data"] = str(layer.path(values["data"]))
    server = values.get("server")
    if isinstance(server, dict) and isinstance(tokens := cast(JSON, server).get("tokens"), str):
        values["server"] = {**server, "tokens": str(layer.path(tokens))}
    if isinstance(store := values.get("store"), dict):
        store = values["store"] = dict(cast(JSON, store))
        if isinstance(file := store.get("url_file"), str):
            store["url_file"] = str(layer.path(file))
        if "url" in store:
            store["url"] = expand(store["url"], f"{layer.name}: store.url", layer.base, environ)
    if isinstance(cluster := values.get("cluster"), dict):
        cluster = values["cluster"] = dict(cast(JSON, cluster))
        if isinstance(file := cluster.get("keys_file"), str):
            cluster["keys_file"] = str(layer.path(file))
        if "keys" in cluster:
            where = f"{layer.name}: cluster.keys"
            cluster["keys"] = expand(cluster["keys"], where, layer.base, environ)
    return values


def _merge_service(
    into: JSON, name: str, service: object, layer: Layer, environ: Mapping[str, str]
) -> None:
    if not isinstance(service, dict):
        into.setdefault(name, service)
        return
    merged = into.setdefault(name, {})
    if not isinstance(merged, dict):
        return
    merged = cast(JSON, merged)
    additions = _missing_settings(_with_type(cast(JSON, service)), merged)
    if not _is_true(merged.get("disabled", additions.get("disabled"))):
        location = f"{layer.name}: services.{name}"
        for key in _EXPANDED_SETTINGS:
            if key in additions:
                additions[key] = expand(additions[key], f"{location}.{key}", layer.base, environ)
        _resolve(additions, layer)
    _add_missing(merged, additions)


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on")


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
        service["command"] = _program_path(command, layer)
    if isinstance(service.get("executable"), str):
        service["executable"] = _program_path(service["executable"], layer)
    for key in ("output_dir", "secrets", "storage_state"):
        if isinstance(service.get(key), str):
            service[key] = str(layer.path(service[key]))
    for key in ("uploads", "init_script", "init_page"):
        if paths := _texts(service.get(key)):
            service[key] = [str(layer.path(path)) for path in paths]
    if words := _texts(service.get("secrets_command")):
        service["secrets_command"] = [_program_path(words[0], layer), *words[1:]]


def _texts(value: object) -> list[str]:
    """Return the texts of a list, also of one that an environment variable gives as `a,b`; empty if it is no such list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    items = cast("list[object]", value) if isinstance(value, list) else []
    texts = [item for item in items if isinstance(item, str)]
    return texts if len(texts) == len(items) else []


def _program_path(command: str, layer: Layer) -> str:
    """Return a path as an absolute one. A name without a folder is returned unchanged: PATH is searched for it later."""
    is_path = os.sep in command or command.startswith("~")
    return str(layer.path(command)) if is_path else command


def _has_placeholder(path: str) -> bool:
    """Whether a path has placeholders, whose values differ for each session."""
    return any(name in path for name in ("{dir}", "{session_id}", "{session_name}"))


def _find_wrong_path(config: Config, layers: list[Layer]) -> str | None:
    def at(*key: str) -> str:
        return next((layer.spell(key) for layer in layers if layer.has(key)), ".".join(key))

    above = next(path for path in (config.data, *config.data.parents) if path.exists())
    if not above.is_dir():
        return (
            f"{at('data')}: {above} is not a folder; give a folder, it is made when it is missing"
        )
    tokens = config.server.tokens
    if tokens is not None and not tokens.is_file():
        return f"{at('server', 'tokens')}: there is no such file; make it, or correct the path"
    for name, service in config.services.items():
        if service.disabled:
            continue
        problem = (
            _find_wrong_path_of_browser(service)
            if isinstance(service, BrowserConfig)
            else _find_wrong_path_of_upstream(service)
        )
        if problem is not None:
            return f"{at('services', name, problem[0])}: {problem[1]}"
    return None


def _find_wrong_path_of_upstream(service: UpstreamConfig) -> tuple[str, str] | None:
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


def _find_wrong_path_of_browser(service: BrowserConfig) -> tuple[str, str] | None:
    program = service.executable
    if program and os.sep in program and not Path(program).is_file():
        return "executable", f"there is no program {program}; correct the path, or leave it out"
    for key in ("init_script", "init_page"):
        paths: list[str] = getattr(service, key)
        missing = next((path for path in paths if not Path(path).is_file()), None)
        if missing is not None:
            return key, f"there is no file {missing}; correct the path"
    if service.storage_state and not Path(service.storage_state).is_file():
        return "storage_state", f"there is no file {service.storage_state}; correct the path"
    if service.secrets:
        # Imported here: most configurations have no secrets.
        from ...tools.browser.secrets.source import read_secrets

        try:
            read_secrets(service.secrets)
        except ValueError as error:
            return "secrets", f"{service.secrets}: {error}"
    for folder in service.uploads:
        if not Path(folder).is_dir():
            return "uploads", f"there is no folder {folder}; make it, or correct the path"
    return None
