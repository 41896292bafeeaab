"""The static bearer tokens of a running server: those of one file, read again when it changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..sessions.records import Principal
from .config.private_file import Stamp, stamp_of
from .config.types import ConfigError
from .token_file import StaticToken, digest_of, read_tokens
from .wrong_tokens import WRONG

logger = logging.getLogger("statehold.server")


class StaticTokens:
    """The tokens of one file. It holds digests only, and refresh() reads them again.

    `clock` returns the seconds since the epoch, which the expiry of a token is compared with.
    """

    def __init__(
        self,
        path: Path,
        tokens: Mapping[bytes, StaticToken],
        stamp: Stamp,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._tokens = tokens
        self._stamp = stamp
        self._clock = clock

    @classmethod
    def read(cls, path: Path, *, clock: Callable[[], float] = time.time) -> StaticTokens:
        """Read a file of tokens.

        Raises:
            ConfigError: the file cannot be read, is open to other users, or holds a mistake or no token. The text has no
                token in it.
        """
        # Before the content, so that a change in between is noticed.
        stamp = stamp_of(path)
        tokens = read_tokens(path)
        if not tokens:
            raise ConfigError(
                f"{path}: holds no token; make one with: statehold tokens add SUBJECT"
            )
        return cls(path, tokens, stamp, clock=clock)

    def refresh(self) -> bool:
        """Read the file again if it has changed. Return whether it did.

        A file with a mistake is reported in the log, and the former tokens stay. A file of comments alone leaves none.
        """
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._tokens = read_tokens(self._path)
        except ConfigError as error:
            logger.error("the former tokens stay valid: %s", error)
            return False
        logger.info("%d tokens are read from %s", len(self._tokens), self._path)
        return True

    def find(self, token: str) -> StaticToken | None:
        """Return the line of a presented token, which may have expired, or None."""
        # The time of the lookup depends on the digest, from which nobody learns the token.
        return self._tokens.get(digest_of(token))

    def valid(self, token: str) -> StaticToken | None:
        """Return the line of a presented token, or None if it is wrong or has expired."""
        found = self.find(token)
        return None if found is None or found.is_expired(self._clock()) else found

    def principal(self, token: str) -> Principal | None:
        """Return the principal of a presented token, or None if it is wrong or has expired."""
        found = self.valid(token)
        return None if found is None else found.principal

    def refusal(self, token: str) -> tuple[str, str]:
        """Return the reason for which valid() is None, and a detail of it, for the log."""
        found = self.find(token)
        if found is None:
            return WRONG, ""
        return "expired token", f"of {found.principal.words}"

    def is_valid(self, token: str) -> bool:
        """Whether a token would be accepted now."""
        return self.valid(token) is not None

    def is_valid_digest(self, digest: str, role: str) -> bool:
        """Whether the token of a digest, in hexadecimal, would be accepted now, and has a role."""
        found = self._tokens.get(bytes.fromhex(digest))
        return found is not None and not found.is_expired(self._clock()) and found.role == role

    def __len__(self) -> int:
        return len(self._tokens)
