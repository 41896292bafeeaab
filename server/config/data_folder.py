"""The data folder of a command line, found without the settings: `statehold call` and `--shared` have no time to load them.

`load()` in load.py finds the same folder; a test compares them. Paths are texts: pathlib takes longer than the rest.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_VARIABLE = "STATEHOLD_CONFIG"
SERVICES_VARIABLE = "STATEHOLD_SERVICES_FILE"
DATA_VARIABLE = "STATEHOLD_DATA"


def default_data_folder() -> str:
    """Return the data folder of this user, by the rules of the platform."""
    if sys.platform == "darwin":
        parent = os.path.expanduser("~/Library/Application Support")
    else:
        # XDG Base Directory Specification 0.8: a relative path in the variable is not used.
        variable = os.environ.get("XDG_DATA_HOME", "")
        parent = variable if os.path.isabs(variable) else os.path.expanduser("~/.local/share")
    return os.path.join(parent, "statehold")


def find_data_folder(
    *, data: str | None = None, config: str | None = None, environ: Mapping[str, str]
) -> str:
    """Return the data folder that `--data`, the environment, or the TOML file of `--config` names, or the default.

    Raises:
        ValueError: the TOML file cannot be read, is not TOML, or its `data` is not a text. The error says what to correct.
    """
    if data is None:
        data = _variable(environ, DATA_VARIABLE)
    if data is not None:
        return os.path.join(os.getcwd(), os.path.expanduser(data))
    source = "--config" if config else CONFIG_VARIABLE
    config = config or environ.get(CONFIG_VARIABLE)
    if not config:
        return default_data_folder()
    path = os.path.join(os.getcwd(), os.path.expanduser(config))
    # Imported here: most callers have no file.
    import tomllib

    try:
        with open(path, encoding="utf-8-sig") as file:
            value: object = tomllib.loads(file.read()).get("data")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; correct {source}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}; correct the TOML") from None
    if value is None:
        return default_data_folder()
    if not isinstance(value, str):
        raise ValueError(f"{path}: data: should be a text")
    return os.path.join(os.path.dirname(path), os.path.expanduser(value))


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    """Return a setting of the environment. Its name may be in any case."""
    for key, value in environ.items():
        if key.upper() == name and value:
            return value
    return None
