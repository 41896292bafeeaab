"""The static bearer tokens of a server: those of one file, read again when it changes.

A line is `sha256:HEX SUBJECT [issuer=ISSUER] [client_id=ID] [role=ROLE] [expires=TIME] [name=NAME]`. `#` begins a
comment, and quotes hold a word with spaces together. A file of comments alone holds no token.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..sessions.records import Principal
from ..sessions.times import format_time, parse_time
from ..tools.foreign_file import replace_foreign
from .config.auth import DEFAULT_ROLE, ROLES, Role
from .config.private_file import Stamp, read_private, stamp_of
from .config.types import ConfigError
from .refusals import WRONG

SETTING: Final = "server.tokens (--token-file)"
_REMEDY: Final = f"{SETTING}, or make the file with: statehold tokens add NAME"
ID_DIGITS: Final = 12
"""Digits of a digest that name its token in lists."""
_PREFIX: Final = "sha256:"
_LINE: Final = (
    "sha256:HEX SUBJECT [issuer=ISSUER] [client_id=ID] [role=ROLE] [expires=TIME] [name=NAME]"
)
_OPTIONS: Final = frozenset({"issuer", "client_id", "role", "expires", "name"})
_HEADER: Final = "# Digests of bearer tokens, written by `statehold tokens`.\n"

logger = logging.getLogger("statehold.server")


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One line of the file."""

    digest: bytes
    """The SHA-256 of the token."""
    principal: Principal
    expires_at: float | None = None
    """Seconds since the epoch; None for a token that stays valid."""
    name: str = ""
    role: Role = DEFAULT_ROLE

    @property
    def id(self) -> str:
        return self.digest.hex()[:ID_DIGITS]

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def line(self) -> str:
        """Return the token as a line of the file."""
        principal, expires_at = self.principal, self.expires_at
        options = {
            "issuer": principal.issuer,
            "client_id": principal.client_id,
            "role": "" if self.role == DEFAULT_ROLE else self.role,
            "expires": "" if expires_at is None else format_time(expires_at),
            "name": self.name,
        }
        words = [f"{_PREFIX}{self.digest.hex()}", shlex.quote(principal.subject)]
        words += [f"{key}={shlex.quote(value)}" for key, value in options.items() if value]
        return " ".join(words) + "\n"


def digest_of(token: str) -> bytes:
    """Return the digest of a token as a caller presents it."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def read_tokens(path: Path) -> dict[bytes, StaticToken]:
    """Return the tokens of a file by their digests.

    Raises:
        ConfigError: the file cannot be read, is open to other users, is empty, or holds a mistake. The text has no token.
    """
    return parse_tokens(path, read_private(path, setting=_REMEDY, content="tokens"))


def parse_tokens(path: Path, text: str) -> dict[bytes, StaticToken]:
    """Return the tokens of a text; see read_tokens()."""
    if not text.strip():
        # An editor empties a file for a moment before it writes.
        raise ConfigError(f"{path}: is empty; make a token with: statehold tokens add SUBJECT")
    tokens: dict[bytes, StaticToken] = {}
    for number, line in enumerate(text.splitlines(), 1):
        location = f"{path}: line {number}"
        token = _parse_line(location, line)
        if token is None:
            continue
        if token.digest in tokens:
            raise ConfigError(f"{location}: the same token stands there twice; remove one")
        tokens[token.digest] = token
    return tokens


def _parse_line(location: str, line: str) -> StaticToken | None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        raise ConfigError(f"{location}: a quote is not closed; correct it") from None
    if not words:
        return None
    digest = _parse_digest(location, words[0])
    pairs = [word.partition("=") for word in words[2:]]
    options = {key: value for key, _, value in pairs}
    if len(words) < 2 or not all(separator and value for _, separator, value in pairs):
        raise ConfigError(f"{location}: should be {_LINE}")
    if len(options) < len(pairs) or not options.keys() <= _OPTIONS:
        raise ConfigError(
            f"{location}: has something twice, or besides {', '.join(sorted(_OPTIONS))}; remove it"
        )
    if not words[1]:
        raise ConfigError(f"{location}: has no subject; add one, such as alice")
    expires = options.get("expires")
    try:
        expires_at = None if expires is None else parse_time(expires)
    except ValueError as error:
        raise ConfigError(f"{location}: expires {error}") from None
    principal = Principal(
        subject=words[1],
        issuer=options.get("issuer", ""),
        client_id=options.get("client_id", ""),
    )
    roles: dict[str, Role] = {role: role for role in ROLES}
    role = roles.get(options.get("role", DEFAULT_ROLE))
    if role is None:
        raise ConfigError(f"{location}: role should be one of {', '.join(ROLES)}; correct it")
    return StaticToken(digest, principal, expires_at, options.get("name", ""), role)


def _parse_digest(location: str, word: str) -> bytes:
    if not word.startswith(_PREFIX):
        raise ConfigError(
            f"{location}: holds a token itself, and only digests are read; write sha256: and the output of "
            "`printf %s TOKEN | sha256sum` in its place, or make a new one with: statehold tokens add SUBJECT"
        )
    digits = word.removeprefix(_PREFIX)
    if not re.fullmatch("[0-9a-fA-F]{64}", digits):
        raise ConfigError(f"{location}: sha256: should be followed by 64 hexadecimal digits")
    return bytes.fromhex(digits)


def add_token(
    path: Path,
    principal: Principal,
    expires_at: float | None,
    name: str,
    role: Role = DEFAULT_ROLE,
) -> tuple[str, StaticToken]:
    """Add a new token to a file, which is made when it is missing. Return it with its line.

    Raises:
        ConfigError: the file cannot be changed, or holds a mistake.
    """
    secret = f"sht_{secrets.token_urlsafe(32)}"
    token = StaticToken(digest_of(secret), principal, expires_at, name, role)
    with _changing(path) as lines:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines.append(token.line())
    return secret, token


def remove_token(path: Path, token_id: str) -> StaticToken:
    """Remove the token whose digest begins with `token_id`, and return it.

    Raises:
        ConfigError: the file cannot be changed, or holds a mistake.
        LookupError: it has no such token, or several.
    """
    with _changing(path) as lines:
        found = [
            (number, token)
            for number, line in enumerate(lines)
            if (token := _parse_line("", line)) is not None
            and token.digest.hex().startswith(token_id.lower().removeprefix(_PREFIX))
        ]
        if len(found) != 1 or len(token_id) < 4:
            raise LookupError(token_id)
        number, token = found[0]
        del lines[number]
    return token


@contextmanager
def _changing(path: Path) -> Generator[list[str]]:
    """Yield the lines of a file, which replace it at once after the block."""
    path = path.resolve()
    try:
        with _locked(path.parent):
            lines = [_HEADER]
            if path.exists():
                text = read_private(path, setting=SETTING, content="tokens")
                lines = text.splitlines(keepends=True)
                if text.strip():
                    parse_tokens(path, text)
            yield lines
            replace_foreign(path, ("".join(lines) or _HEADER).encode())
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be changed ({error.strerror}); correct {SETTING}"
        ) from None


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other commands of this system from changing a file of the folder meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
