"""Static bearer tokens: a file with the principal of each token.

Either TOML, with one `[[token]]` table per token (`token`, `subject`, and optionally `client_id` and `issuer`), or lines of
`TOKEN SUBJECT [client_id=ID] [issuer=ISSUER]`. `#` begins a comment. A token is written as plain text, or as `sha256:` and
its hexadecimal digest, so that the file does not hold the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from ...sessions.records import Principal
from ..config.model import ConfigError
from ..config.private_file import is_weak, read_private

MIN_LENGTH = 16
"""The length of the shortest accepted token; a shorter one could be guessed."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_TOKEN_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_FIELDS = frozenset({"token", "subject", "client_id", "issuer"})


class StaticTokens:
    """The tokens of one file, read once. It holds digests only. A lookup always takes the same time."""

    def __init__(self, principals: Iterable[tuple[bytes, Principal]]) -> None:
        self._principals = list(principals)

    @classmethod
    def read(cls, path: Path) -> StaticTokens:
        """Read a file of tokens.

        Raises:
            ConfigError: the file cannot be read, is open to other users, or holds a mistake. The text has no token in it.
        """
        text = read_private(path, setting="server.tokens (--token-file)", content="tokens")
        entries = _parse_toml(path, text) if _is_toml(text) else _parse_lines(path, text)
        principals: dict[bytes, Principal] = {}
        for location, entry in entries:
            digest, principal = _parse_entry(location, entry)
            if digest in principals:
                raise ConfigError(f"{location}: the same token stands there twice; remove one")
            principals[digest] = principal
        if not principals:
            raise ConfigError(f"{path}: holds no token; add a line: TOKEN SUBJECT")
        return cls(principals.items())

    def principal(self, token: str) -> Principal | None:
        """Return the principal of a presented token, or None."""
        token_digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        match: Principal | None = None
        for digest, principal in self._principals:
            if hmac.compare_digest(digest, token_digest):
                match = principal
        return match

    def __len__(self) -> int:
        return len(self._principals)


def _is_toml(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith("[") or re.match(r"\w+\s*=", first) is not None


def _parse_toml(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line \d+", str(error))
        # The parser's own words may quote the text around the mistake, which may be a token.
        raise ConfigError(
            f"{path}: {line[0] if line else 'end of file'}: is not TOML; correct it"
        ) from None
    tables = document.pop("token", [])
    if document or not isinstance(tables, list):
        raise ConfigError(f"{path}: should hold [[token]] tables only; correct it")
    entries: list[tuple[str, dict[str, Any]]] = []
    for number, table in enumerate(cast(list[Any], tables), 1):
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: should hold [[token]] tables only; correct it")
        entries.append((f"{path}: token {number}", cast(dict[str, Any], table)))
    return entries


def _parse_lines(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    entries: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        location = f"{path}: line {number}"
        options = [word.split("=", 1) for word in words[2:]]
        if len(words) < 2 or any(len(option) != 2 for option in options):
            raise ConfigError(f"{location}: should be TOKEN SUBJECT [client_id=ID] [issuer=ISSUER]")
        entries.append((location, {"token": words[0], "subject": words[1], **dict(options)}))
    return entries


def _parse_entry(location: str, entry: dict[str, Any]) -> tuple[bytes, Principal]:
    unknown = sorted(entry.keys() - _FIELDS)
    if unknown:
        raise ConfigError(
            f"{location}: has something besides token, subject, client_id and issuer; remove it"
        )
    if not all(isinstance(value, str) for value in entry.values()):
        raise ConfigError(f"{location}: token, subject, client_id and issuer should be strings")
    if not entry.get("subject"):
        raise ConfigError(f'{location}: has no subject; add one, such as "alice"')
    principal = Principal(
        subject=entry["subject"],
        client_id=entry.get("client_id", ""),
        issuer=entry.get("issuer", ""),
    )
    return _digest(location, entry.get("token", "")), principal


def _digest(location: str, token: str) -> bytes:
    match = _TOKEN_DIGEST.fullmatch(token)
    if match:
        return bytes.fromhex(match[1])
    if token.startswith("sha256:"):
        raise ConfigError(f"{location}: sha256: should be followed by 64 hexadecimal digits")
    if len(token) < MIN_LENGTH or not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{location}: a token needs at least {MIN_LENGTH} letters, digits or ._~+/-; make one with: openssl rand -hex 32"
        )
    if is_weak(token, length=MIN_LENGTH):
        raise ConfigError(
            f"{location}: this token can be guessed, since it repeats itself or has few different characters; make one "
            "with: openssl rand -hex 32"
        )
    return hashlib.sha256(token.encode()).digest()
