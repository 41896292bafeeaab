"""Files of static tokens, with digests as a server reads them."""

from __future__ import annotations

import hashlib
from pathlib import Path


def token_lines(text: str) -> str:
    """Return lines of `TOKEN SUBJECT [option=value]` with the digest of each token in its place."""
    return "".join(map(_token_line, text.splitlines()))


def write_tokens(path: Path, text: str) -> Path:
    """Write a file with the digests of `TOKEN SUBJECT [option=value]` lines, which only its owner may read."""
    path.touch(0o600)
    path.write_text(token_lines(text))
    return path


def _token_line(line: str) -> str:
    token, _, rest = line.partition(" ")
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {rest}\n"


__all__ = ["token_lines", "write_tokens"]
