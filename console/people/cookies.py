"""The cookies of the console."""

from __future__ import annotations

from typing import Final, Literal

from starlette.responses import Response

LOGIN: Final = "__Host-statehold"
"""The prefix has browsers accept it only with Secure, with the path / and for this host alone."""
GUEST: Final = "__Host-statehold-guest"
"""The cookie of a link, beside that of a login: opening a link ends no login."""
ATTEMPT: Final = "__Host-statehold-attempt"
"""The cookie of a browser that is at the issuer of accounts."""


def set_cookie(
    response: Response,
    name: str,
    value: str,
    seconds: float,
    *,
    samesite: Literal["strict", "lax"] = "strict",
) -> None:
    """Have a response set a cookie; with 0 seconds, delete it."""
    response.set_cookie(
        name,
        value,
        max_age=max(0, int(seconds)),
        path="/",
        secure=True,
        httponly=True,
        samesite=samesite,
    )
