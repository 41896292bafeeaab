"""Files with secrets, which only this process may read, their changes, and secrets that can be guessed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .types import ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at files that are read again when they change."""

Stamp = tuple[tuple[int, int, int, int] | None, ...]
"""The identity, the size, the time and the mode of some files; None for one that is missing."""


def read_private(path: Path, *, setting: str, content: str) -> str:
    """Return the text of a file. `content` names the secrets in it.

    Raises:
        ConfigError: the file cannot be read, or is open to other users.
    """
    try:
        with path.open("rb") as file:
            if os.name == "posix" and not _is_private(os.fstat(file.fileno())):
                raise ConfigError(
                    f"{path}: other users may read the {content}; run: chmod 600 {path}"
                )
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); correct {setting}") from None


def load_certificate(
    context: SSLContext, certificate: Path, key: Path, *, setting: str, content: str = "key"
) -> None:
    """Give a TLS context the certificate and the key in two files. `content` names the key.

    Raises:
        ConfigError: one cannot be read or used, or the key is open to other users.
    """
    import ssl  # here because few processes use TLS

    read_private(key, setting=f"{setting}.key", content=content)
    names = f"{setting}.certificate, {setting}.key"
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ConfigError(f"{names}: {certificate}: not usable ({error.reason})") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"{names}: {certificate} cannot be read: {reason}") from None


def stamp_of(*paths: Path) -> Stamp:
    """Return a value that changes when one of the files is written or replaced."""
    return tuple(map(_stamp, paths))


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        # Of the file behind a link: Kubernetes replaces a Secret by another link.
        status = path.stat()
    except OSError:
        return None
    # The mode, too: a file that was open to others is read again after `chmod 600`.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def is_weak(secret: str, *, length: int) -> bool:
    """Whether a secret has fewer than `length` characters, few different ones, or repeats a shorter text."""
    is_repeated = secret in (secret + secret)[1:-1]
    return len(secret) < length or len(set(secret)) < length // 4 or is_repeated


def _is_private(status: os.stat_result) -> bool:
    """Whether only this process and root can read a file: its group may read it where root gives it to this process.

    Kubernetes mounts a Secret so: the files belong to root and to the group of the pod.
    """
    is_given = status.st_uid == 0 and os.geteuid() != 0
    return not stat.S_IMODE(status.st_mode) & (0o037 if is_given else 0o077)
