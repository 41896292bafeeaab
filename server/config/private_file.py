"""Files with secrets, which only this process may read, and secrets that can be guessed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .model import ConfigError


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


__all__ = ["is_weak", "read_private"]
