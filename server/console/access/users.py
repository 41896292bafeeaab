"""The person behind a token, as a user of the console."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken

from ...auth.principals import groups_of, principal_of, role_of
from ...auth.scopes import CONTROL
from ..logins import ConsoleUser


def user_of_token(token: AccessToken) -> ConsoleUser:
    """Return the user of a verified token."""
    principal = principal_of(token)
    return ConsoleUser(
        f"{principal.subject} at the console",
        principal,
        "control" if CONTROL in token.scopes else "view",
        role=role_of(token),
        groups=groups_of(token),
    )


__all__ = ["user_of_token"]
