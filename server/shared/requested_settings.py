"""The settings that a client asks of a server, in a form in which they can be compared with those of the server.

The flags, the `STATEHOLD_*` variables and the contents of the files are compared one by one. Only digests of them leave the
process, since values may be secret.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...keeper.marks import MARK
from ..config.data_folder import CONFIG_VARIABLE, DATA_VARIABLE, SERVICES_VARIABLE

PREFIX = "STATEHOLD_"
SESSION_VARIABLE = "STATEHOLD_SERVER__SESSION"
_OF_CLIENTS = frozenset({DATA_VARIABLE, SESSION_VARIABLE, CONFIG_VARIABLE, SERVICES_VARIABLE})
"""Variables that each client has for itself, that name the data folder, or that are compared as a flag."""


_VARIABLES = {"--config": CONFIG_VARIABLE, "--services": SERVICES_VARIABLE}
"""The variables that name a file, by the flag as which it is compared."""


def requested_settings(flags: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, str]:
    """Return a digest of each setting that the server has for all clients, by the name that a user knows.

    `flags` are the values by flag, without those of clients.
    """
    flags = dict(flags)
    files = {
        flag: flags.pop(flag, None) or environ.get(variable)
        for flag, variable in _VARIABLES.items()
    }
    values = {flag: str(value).encode() for flag, value in flags.items()}
    values |= {name: os.fsencode(value) for name, value in _values(environ).items()}
    for flag, file in files.items():
        if file:
            values[flag] = _path_and_contents(Path(str(file)).expanduser().absolute())
    return {name: hashlib.sha256(value).hexdigest()[:32] for name, value in values.items()}


def _values(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name.upper(): value for name, value in environ.items()}
    names = {name for name in found if name.startswith(PREFIX)} - _OF_CLIENTS
    if not names:
        return {}
    return {name: found[name] for name in names - {MARK}}


def _path_and_contents(path: Path) -> bytes:
    try:
        contents = path.read_bytes()
    except OSError:
        # The server that is started with it reports it.
        contents = b""
    return str(path).encode() + b"\0" + contents


def differences(asked: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that are asked for and that a server does not have so."""
    return sorted(name for name, value in asked.items() if running.get(name) != value)


def label(names: Iterable[str]) -> str:
    """Return the names of settings for a user, who may have given a file in the environment."""
    return ", ".join(
        f"{name} ({_VARIABLES[name]})" if name in _VARIABLES else name for name in names
    )
