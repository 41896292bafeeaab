"""Principals and their access tokens."""

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


def token_of(principal: Principal, *, token: str) -> AccessToken:
    """Return the access token of a principal; principal_of() is the inverse."""
    return AccessToken(
        token=token,
        client_id=principal.client_id,
        scopes=[],
        subject=principal.subject,
        claims={"iss": principal.issuer},
    )


__all__ = ["principal_of", "token_of"]
