"""The person behind a token, as a user of the console."""

from __future__ import annotations

from typing import Final

from mcp.server.auth.provider import AccessToken

from ...access.claims import groups_of, principal_of, role_of
from ...access.scopes import CONTROL
from ...sessions.one_line import plain_name
from ..logins import ConsoleUser

NAME_CHARACTERS: Final = 60


def user_of_token(token: AccessToken) -> ConsoleUser:
    """Return the user of a verified token."""
    principal = principal_of(token)
    return ConsoleUser(
        f"{plain_name(principal.subject, NAME_CHARACTERS)} at the console",
        principal,
        "control" if CONTROL in token.scopes else "view",
        role=role_of(token),
        groups=groups_of(token),
    )
