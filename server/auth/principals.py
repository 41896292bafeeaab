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


def describe_principal(principal: Principal) -> str:
    """Return the words for a principal in the log: its issuer, if it has one, and its subject."""
    return f"{principal.issuer}/{principal.subject}" if principal.issuer else principal.subject


__all__ = ["describe_principal", "principal_of", "token_of"]
