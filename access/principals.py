"""Principals and their access tokens."""

from __future__ import annotations

from functools import lru_cache

from mcp.server.auth.provider import AccessToken

from ..sessions.principals.rules import Membership
from ..sessions.records import Principal
from .config.auth import DEFAULT_ROLE, Role
from .scopes import SCOPES


def principal_of(token: AccessToken) -> Principal:
    """Return the principal of a token."""
    claims = token.claims or {}
    return _principal(str(claims.get("iss") or ""), token.subject or "", token.client_id or "")


@lru_cache(maxsize=1024)
def _principal(issuer: str, subject: str, client_id: str) -> Principal:
    # A request asks for it several times, and it keeps its key.
    return Principal(issuer=issuer, subject=subject, client_id=client_id)


def role_of(token: AccessToken) -> Role:
    """Return the role of the caller of a token."""
    role: Role = (token.claims or {}).get("role", DEFAULT_ROLE)
    return role


def groups_of(token: AccessToken) -> tuple[str, ...]:
    """Return the groups of the caller of a token."""
    return tuple((token.claims or {}).get("groups") or ())


def token_of(principal: Principal, role: Role = DEFAULT_ROLE) -> AccessToken:
    """Return an access token of a principal with all scopes; principal_of() is the inverse."""
    return AccessToken(
        token="",
        client_id=principal.client_id,
        scopes=list(SCOPES),
        subject=principal.subject,
        claims={"iss": principal.issuer, "role": role},
    )


def membership_of(token: AccessToken) -> Membership:
    """Return the groups and the role that an issuer names in a token."""
    claims = token.claims or {}
    groups = groups_of(token)
    expires_at = token.expires_at or 0
    ends: dict[str, float] = dict.fromkeys(groups, expires_at) if expires_at else {}
    return Membership(groups, str(claims.get("role") or DEFAULT_ROLE), ends)
