"""The store that a configuration selects."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from ...access.config.private_file import is_weak, read_private
from ...access.config.types import ConfigError
from ...sessions.store.dialect import FILE_NAME
from ...sessions.store.sealing.encryption import SHORTEST_KEY
from ...sessions.store.sealing.keyring import Keyring
from ...sessions.store.sql import SQLStore
from ...tools.processes.command import run_command
from ..config.model import Config
from ..config.ports import KEY_LENGTH
from ..config.sections import SealingSettings

COMMAND_SECONDS: Final = 20.0
"""Seconds that a command may take to print the sealing keys."""


def store_of(config: Config, *, replace_damaged: bool = False) -> SQLStore:
    """Return the configured store, not opened yet: in memory, on a database server, or in the data folder.

    `replace_damaged`: a database file too damaged to be opened is set aside and replaced by a new one.

    Raises:
        ConfigError: `store.url` is not the URL of a database. The message does not quote it: it may hold a password.
        StoreUnavailable: the driver is not installed.
    """
    retention, limits = config.timeouts.retention, config.journal_limits()
    read_keys = partial(_sealing_keys, config.sealing) if config.sealing.enabled else None
    keyring = Keyring(config.data, read_keys)
    if config.ephemeral:
        return SQLStore.memory(retention=retention, limits=limits)
    url = url_of(config)
    if url is None:
        return SQLStore.sqlite(
            config.data,
            retention=retention,
            limits=limits,
            keyring=keyring,
            replace_damaged=replace_damaged,
        )
    _refuse_sqlite(url)
    if config.cluster.enabled and not url.startswith(("postgres:", "postgresql")):
        raise ConfigError("cluster.enabled: store.url has to name a PostgreSQL database")
    try:
        return SQLStore.remote(url, retention=retention, limits=limits, keyring=keyring)
    except ValueError as error:
        problem = str(error)
    raise ConfigError(f"store.url: {problem}")


async def _sealing_keys(settings: SealingSettings) -> list[str]:
    """
    Raises:
        CommandFailed: the command fails.
        ValueError: a key is weak.
    """
    if settings.command:
        output = await run_command(settings.command, seconds=COMMAND_SECONDS)
        keys = [line.strip() for line in output.splitlines() if line.strip()]
    else:
        keys = [key.get_secret_value().strip() for key in settings.keys]
    # The words of a command, such as the head of a table, are no key.
    if any(" " in key or is_weak(key, length=SHORTEST_KEY) for key in keys):
        raise ValueError("a key is weak, or has blanks; make one with: openssl rand -base64 32")
    return keys


def _refuse_sqlite(url: str) -> None:
    scheme, _, file = url.partition("://")
    if scheme.partition("+")[0].lower() != "sqlite":
        return
    path = file.removeprefix("/").partition("?")[0]
    instead = (
        f'data = "{Path(path).parent}", whose database is the file {FILE_NAME} in it'
        if path not in ("", ":memory:")
        else "ephemeral = true"
    )
    raise ConfigError(f"store.url: is for database servers; for SQLite write {instead}")


def url_of(config: Config) -> str | None:
    """Return the URL of the database, None for the one in the data folder.

    Raises:
        ConfigError: the file that holds the URL cannot be read.
    """
    if config.store.url is not None:
        return config.store.url.get_secret_value().strip()
    if config.store.url_file is None:
        return None
    return _read_file("store.url_file", config.store.url_file).strip()


def _read_file(setting: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
    raise ConfigError(f"{setting}: cannot be read: {reason}; correct the path")


def cluster_keys(config: Config) -> list[bytes]:
    """Return the keys of the cluster; the first one signs.

    Raises:
        ConfigError: the file that holds them cannot be read or is open to other users, or one is weak.
    """
    keys = [key.get_secret_value() for key in config.cluster.keys]
    if config.cluster.keys_file is not None:
        text = read_private(
            config.cluster.keys_file, setting="cluster.keys_file", content="keys of the cluster"
        )
        keys += [line.strip() for line in text.splitlines() if line.strip()]
    if not keys or any(is_weak(key, length=KEY_LENGTH) for key in keys):
        raise ConfigError(
            f"cluster.keys, cluster.keys_file: a key needs at least {KEY_LENGTH} characters that cannot be guessed, one key "
            "on each line; run: openssl rand -hex 32"
        )
    return [key.encode() for key in keys]


def is_remote(config: Config) -> bool:
    """Whether the store is on a database server."""
    return config.store.url is not None or config.store.url_file is not None


def may_exist(config: Config) -> bool:
    """Whether a store may exist. The check creates no file and no folder; a database server is not asked."""
    return is_remote(config) or (config.data / FILE_NAME).exists()
