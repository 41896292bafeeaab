"""Logins in addresses, such as `https://USER:PASSWORD@staging.test`."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "••••••"
TOKEN: Final = 17
"""The characters of a user name without a password from which it counts as a token."""

# A quote belongs to a password unless the text that quotes the address goes on after it.
_LOGIN: Final = re.compile(
    r"""(?<=://)(?:(?P<user>[^\s/:@?#]*:)(?:[^\s/?#"'<>]|["'](?![],;:)}]))+"""
    rf"""|[^\s/:@?#"'<>]{{{TOKEN},}})(?=@)"""
)


def mask_logins(text: str) -> str:
    """Return a text in which the passwords of addresses, and tokens in place of user names, are masked."""
    if "@" not in text or "://" not in text:
        return text
    return _LOGIN.sub(lambda match: f"{match['user'] or ''}{MASK}", text)
