"""The data folder of a command line, found without the settings: the pipe of `--shared` has no time to load them.

`load()` in load.py finds the same folder; a test compares them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

CONFIG_VARIABLE = "STATEHOLD_CONFIG"
SERVICES_VARIABLE = "STATEHOLD_SERVICES_FILE"
DATA_VARIABLE = "STATEHOLD_DATA"


def default_data_folder() -> Path:
    """Return the data folder of this user, by the rules of the platform."""
    # Imported here: most callers name a folder.
    from platformdirs import user_data_dir

    return Path(user_data_dir("statehold", appauthor=False))


def find_data_folder(
    *, data: str | None = None, config: str | None = None, environ: Mapping[str, str]
) -> Path:
    """Return the data folder that `--data`, the environment, or the TOML file of `--config` names, or the default.

    Raises:
        OSError: the TOML file cannot be read.
        ValueError: it is not TOML, or its `data` is not a text.
    """
    if data is None:
        data = _variable(environ, DATA_VARIABLE)
    if data is not None:
        return Path.cwd() / Path(data).expanduser()
    config = config or environ.get(CONFIG_VARIABLE)
    if not config:
        return default_data_folder()
    path = Path(config).expanduser().absolute()
    value: object = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("data")
    if value is None:
        return default_data_folder()
    if not isinstance(value, str):
        raise ValueError("data: should be a text")
    return path.parent / Path(value).expanduser()


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    """Return a setting of the environment. Its name may be in any case."""
    return next(
        (value for key, value in environ.items() if key.upper() == name and value),
        None,
    )


__all__ = [
    "CONFIG_VARIABLE",
    "DATA_VARIABLE",
    "SERVICES_VARIABLE",
    "default_data_folder",
    "find_data_folder",
]
