"""The records of the authorization server."""

from __future__ import annotations

from ..records import Record


class OAuthRecord(Record):
    """A login at the authorization server, or an identity assertion that was used."""

    digest: str
    """SHA-256 of the id of the login, or of the assertion, in hexadecimal digits."""
    secret: str
    """SHA-256 of the only code or refresh token that the login accepts now; of an assertion, empty."""
    owner: str = ""
    """The key of the person; of an assertion, empty."""
    document: str
    expires_at: float
