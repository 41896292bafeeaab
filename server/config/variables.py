"""Replaces `${NAME}` and the other variables of clients in the settings of a service.

Values never appear in a message, since they may be secret.

Also finds the secrets in a configuration, which the journal, the log and exports without secrets do not hold.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ...access.config.types import ConfigError
from ...sessions.journal.redaction import Redactor
from ...sessions.json_codec import JSON
from ...sessions.policy import Policy
from ...tools.foreign_file import SETTINGS_BYTES, read_foreign
from ...tools.processes.launch import inherited_environment
from ...tools.upstream.config import UpstreamConfig
from ...tools.upstream.known_secrets import is_setting, named_secrets

_VARIABLE = re.compile(
    r"\$\$(?P<escaped>\{)|\$\{(?P<editor>input|command|config):[^}]*\}"
    r"|\$\{file:(?P<file>[^}]+)\}"
    r"|\$\{(?P<env>env:)?(?P<name>[A-Za-z_]\w*|/)(?P<default>:-[^}]*)?\}"
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a value: its source, and its keys from `services` or another table down."""

    source: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source}: {'.'.join(self.keys)}"

    def below(self, key: str) -> Location:
        return Location(self.source, (*self.keys, key))

    @property
    def table(self) -> str:
        """The TOML line and table that set this value in the file of --config."""
        keys = [key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in self.keys]
        return f"{keys[-1]} = ... below [{'.'.join(keys[:-1])}]"


def expand(value: Any, where: Location, folder: Path, environ: Mapping[str, str]) -> Any:
    """Replace `${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${file:PATH}` in every string of a JSON value.

    `$${` becomes `${`. `folder` is that of the file, for the variables of editors such as `${workspaceFolder}`.

    Raises:
        ConfigError: a variable is not set, or a file cannot be read. The error names the variable and its location, `where`.
    """
    if isinstance(value, list):
        return [expand(item, where, folder, environ) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        return {
            key: expand(item, where.below(key), folder, environ)
            for key, item in cast(JSON, value).items()
        }
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        return _resolve_variable(match, where, folder, environ)

    return _VARIABLE.sub(replace, value)


def _resolve_variable(
    match: re.Match[str], where: Location, folder: Path, environ: Mapping[str, str]
) -> str:
    if match["escaped"]:
        return "${"
    if match["editor"]:
        raise ConfigError(
            f"{where}: {match[0]} is asked for by the editor only; give the value as {where.table} in the file of "
            "--config, for example with ${NAME} of an environment variable"
        )
    if match["file"]:
        return _read_file(folder / Path(match["file"]).expanduser(), where)
    name = match["name"]
    if environ.get(name):
        return environ[name]
    if not match["env"] and name in (editor_variables := _editor_variables(folder)):
        return editor_variables[name]
    if match["default"] is not None:
        return match["default"][2:]
    if name in environ:
        return ""
    raise ConfigError(
        f"{where}: the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
    )


def _read_file(path: Path, where: Location) -> str:
    """Return the text of a file without the white space around it."""
    try:
        content = read_foreign(path, SETTINGS_BYTES)
        return content.decode("utf-8-sig").replace("\r\n", "\n").strip()
    except (UnicodeDecodeError, OSError) as error:
        raise unreadable(path, where, error) from None


def unreadable(path: Path, where: Location, error: UnicodeDecodeError | OSError) -> ConfigError:
    """Return the error about a file that a setting names, and that cannot be read as text."""
    if isinstance(error, UnicodeDecodeError):
        return ConfigError(f"{where}: {path} is not UTF-8 text; save it as UTF-8")
    return ConfigError(
        f"{where}: {path} cannot be read ({error.strerror}); correct the path or its permissions"
    )


def _editor_variables(folder: Path) -> dict[str, str]:
    workspace = folder.parent if folder.name in (".vscode", ".cursor") else folder
    return {
        "userHome": str(Path.home()),
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "pathSeparator": os.sep,
        "/": os.sep,
    }


SHORTEST_SECRET: Final = 6
"""The shortest value that counts as a secret; shorter ones occur in ordinary texts."""
_WORDS: Final = re.compile(r"[^\W\d_]+|[\d.,:]+|[/~.].*")
"""A word, a number or a path: only a secret if its name says so."""


def secrets_of(services: Iterable[object], inherit_env: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of the services that are secret by name or by form, and values of `env` that may be secret."""
    secrets: set[str] = set()
    for service in services:
        if isinstance(service, UpstreamConfig) and not service.disabled:
            environment = inherited_environment((*inherit_env, *service.inherit_env))
            secrets.update(named_secrets(service, environment))
            secrets.update(
                value
                for name, value in service.env.items()
                if any(map(str.isdigit, value))
                and not _WORDS.fullmatch(value)
                and not is_setting(name, value)
            )
    return tuple(sorted(text for text in secrets if len(text) >= SHORTEST_SECRET))


def redactor_of(policy: Policy) -> Redactor:
    """Return the redactor of a command that reads the store without a server."""
    return Redactor(policy.redact, policy.redact_patterns, policy.secrets)
