"""The principal of an access token."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken

from ...sessions.records import Principal


def principal_of(token: AccessToken) -> Principal:
    """Return the principal of a token."""
    claims = token.claims or {}
    return Principal(
        issuer=str(claims.get("iss") or ""),
        subject=token.subject or "",
        client_id=token.client_id or "",
    )


__all__ = ["principal_of"]
