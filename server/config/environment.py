"""The settings in `STATEHOLD_*` variables, read with pydantic-settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from ...access.config.types import ConfigError
from ...sessions.json_codec import JSON
from .model import PREFIX, Config


class _Environment(BaseSettings, Config):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Config for pydantic-settings; only used to read the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )


class _EnvironmentSource(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return text that is not JSON unchanged. The model splits `a,b` into a list, and reports mistakes."""
        try:
            return json.loads(value)
        except ValueError:
            return value


def read_environment(environ: Mapping[str, str]) -> JSON:
    """Return the settings of the environment, as JSON that Config has yet to validate.

    Raises:
        ConfigError: a variable sets a single entry of `env` or `headers`.
    """
    source = _EnvironmentSource(_Environment)
    source.env_vars = {key.lower(): value for key, value in environ.items() if value}
    values = source()
    services = values.get("services")
    if isinstance(services, dict):
        for name, service in cast(JSON, services).items():
            _refuse_nested_names(name, service, environ)
    return values


def _refuse_nested_names(name: str, service: object, environ: Mapping[str, str]) -> None:
    """Refuse variables that set one name in `env` or `headers`: variables are read in lower case, so it would change."""
    if not isinstance(service, dict):
        return
    for key in ("env", "headers", "cdp_headers", "http_credentials"):
        start = f"{PREFIX}services__{name}__{key}__".upper()
        if any(variable.upper().startswith(start) for variable in environ):
            raise ConfigError(
                f"{start}*: cannot be given one by one; write {key} in the file and use ${{VARIABLE}} in it"
            )
