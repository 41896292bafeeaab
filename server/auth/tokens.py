"""Static bearer tokens: a file with the principal of each token.

Either TOML, with one `[[token]]` table per token (`token`, `subject`, and optionally `client_id` and `issuer`), or lines of
`TOKEN SUBJECT [client_id=ID] [issuer=ISSUER]`. `#` begins a comment. A token is given as it is, or as `sha256:` and its
hexadecimal digest, so that the file does not hold the secret itself.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from ...sessions.records import Principal
from ..config.model import ConfigError

SHORTEST = 16
"""The shortest token that is accepted; a shorter one could be guessed."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")
_FIELDS = frozenset({"token", "subject", "client_id", "issuer"})


class StaticTokens:
    """The tokens of one file, read once. Holds digests only; looking one up takes the same time for every answer."""

    def __init__(self, known: Iterable[tuple[bytes, Principal]]) -> None:
        self._known = list(known)

    @classmethod
    def read(cls, path: Path) -> StaticTokens:
        """Read a file of tokens.

        Raises:
            ConfigError: when it cannot be read, is open to other users, or holds a mistake. No token is in its text.
        """
        text = _read_private(path)
        entries = _from_toml(path, text) if _is_toml(text) else _from_lines(path, text)
        known: dict[bytes, Principal] = {}
        for where, entry in entries:
            digest, principal = _known(where, entry)
            if digest in known:
                raise ConfigError(f"{where}: the same token stands there twice; remove one")
            known[digest] = principal
        if not known:
            raise ConfigError(f"{path}: holds no token; add a line: TOKEN SUBJECT")
        return cls(known.items())

    def principal(self, token: str) -> Principal | None:
        """Return the principal of a presented token, or None."""
        presented = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        found: Principal | None = None
        for digest, principal in self._known:
            if hmac.compare_digest(digest, presented):
                found = principal
        return found

    def __len__(self) -> int:
        return len(self._known)


def _read_private(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
                raise ConfigError(f"{path}: other users may read the tokens; run: chmod 600 {path}")
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); correct server.tokens (--token-file)"
        ) from None


def _is_toml(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith("[") or re.match(r"\w+\s*=", first) is not None


def _from_toml(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line \d+", str(error))
        # The parser's own words may quote the text around the mistake, which may be a token.
        raise ConfigError(
            f"{path}: {place[0] if place else 'end of file'}: is not TOML; correct it"
        ) from None
    tables = document.pop("token", [])
    if document or not isinstance(tables, list):
        raise ConfigError(f"{path}: should hold [[token]] tables only; correct it")
    found: list[tuple[str, dict[str, Any]]] = []
    for number, table in enumerate(cast(list[Any], tables), 1):
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: should hold [[token]] tables only; correct it")
        found.append((f"{path}: token {number}", cast(dict[str, Any], table)))
    return found


def _from_lines(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        where = f"{path}: line {number}"
        options = [word.split("=", 1) for word in words[2:]]
        if len(words) < 2 or any(len(option) != 2 for option in options):
            raise ConfigError(f"{where}: should be TOKEN SUBJECT [client_id=ID] [issuer=ISSUER]")
        found.append((where, {"token": words[0], "subject": words[1], **dict(options)}))
    return found


def _known(where: str, entry: dict[str, Any]) -> tuple[bytes, Principal]:
    unknown = sorted(entry.keys() - _FIELDS)
    if unknown:
        raise ConfigError(
            f"{where}: has something besides token, subject, client_id and issuer; remove it"
        )
    if not all(isinstance(value, str) for value in entry.values()):
        raise ConfigError(f"{where}: token, subject, client_id and issuer should be strings")
    if not entry.get("subject"):
        raise ConfigError(f'{where}: has no subject; add one, such as "alice"')
    principal = Principal(
        subject=entry["subject"],
        client_id=entry.get("client_id", ""),
        issuer=entry.get("issuer", ""),
    )
    return _digest(where, entry.get("token", "")), principal


def _digest(where: str, token: str) -> bytes:
    hashed = _HASHED.fullmatch(token)
    if hashed:
        return bytes.fromhex(hashed[1])
    if token.startswith("sha256:"):
        raise ConfigError(f"{where}: sha256: should be followed by 64 hexadecimal digits")
    if len(token) < SHORTEST or not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{where}: a token needs at least {SHORTEST} letters, digits or ._~+/-; make one with: openssl rand -hex 32"
        )
    return hashlib.sha256(token.encode()).digest()
