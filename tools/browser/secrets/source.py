"""The source of named secrets: a file of lines NAME=value, or a command that prints such lines."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from typing import Final

import anyio.to_thread

from ...processes.command import run_command
from ..config import BrowserConfig
from ..devtools.world import is_origin, origin_of
from ..errors import InvalidSetting
from .named import SHORTEST, NamedSecret, NamedSecrets

logger = logging.getLogger("statehold.browser")

MARGIN_SECONDS: Final = 2.0
"""Seconds of `connect_seconds` that are left to the browser when the command takes too long."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def read_secrets(path: str) -> NamedSecrets:
    """Read a file of secrets.

    Raises:
        ValueError: The file cannot be read, or a line is wrong. The message holds no value.
    """
    try:
        text = Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    return parse_secrets(text)


def parse_secrets(text: str) -> NamedSecrets:
    """Return the secrets in a text of lines `NAME=value` or `NAME@https://shop.test=value`, quoted as in dotenv files.

    A value that is empty or too short is left out, with a reason.

    Raises:
        ValueError: A line is wrong. The message holds no value.
    """
    # Imported here: most configurations have no secrets.
    from dotenv.parser import parse_stream

    secrets: dict[tuple[str, str | None], NamedSecret] = {}
    omitted: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        line = f"line {binding.original.line}"
        if binding.error or (binding.key is not None and binding.value is None):
            raise ValueError(f"{line} is not NAME=value")
        if binding.key is None:
            continue
        secret = _parse_secret(line, binding.key, binding.value or "")
        if len(secret.value) < SHORTEST:
            omitted[secret.name] = (
                f"{line}: the value of {secret.name} has fewer than {SHORTEST} characters"
            )
            continue
        key = secret.name, secret.origin
        if key in secrets:
            raise ValueError(f"{line}: {secret.name} is there twice")
        secrets[key] = secret
    for name, origin in secrets:
        if origin is not None and (name, None) in secrets:
            raise ValueError(f"{name} is there with and without an origin; keep one of the two")
    return NamedSecrets(list(secrets.values()), omitted=omitted)


def _parse_secret(line: str, key: str, value: str) -> NamedSecret:
    name, at, address = key.partition("@")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{line}: a name has letters, digits and _ only")
    if at and not is_origin(address):
        raise ValueError(f"{line}: behind {name}@ stands no origin such as https://shop.test")
    return NamedSecret(name, value, origin_of(address) if at else None)


async def load_secrets(config: BrowserConfig) -> NamedSecrets:
    """Return the secrets of a configuration; the command runs for at most `connect_seconds`. The log names those left out.

    Raises:
        InvalidSetting: They cannot be read. The message holds no value.
    """
    setting = "secrets" if config.secrets is not None else "secrets_command"
    try:
        secrets = await _read_configured(config)
    except ValueError as error:
        raise InvalidSetting(f"`{setting}` gives no secrets: {error}.") from None
    for name, reason in secrets.omitted.items():
        logger.warning("`%s`: %s; %%%s%% is left out", setting, reason, name)
    return secrets


async def _read_configured(config: BrowserConfig) -> NamedSecrets:
    if config.secrets is not None:
        return await anyio.to_thread.run_sync(read_secrets, config.secrets)
    if config.secrets_command:
        seconds = config.connect_seconds - min(MARGIN_SECONDS, config.connect_seconds / 5)
        return parse_secrets(await run_command(config.secrets_command, seconds=seconds))
    return NamedSecrets()
