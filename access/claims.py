"""The claims of an access token or an ID token: they are checked, and name a caller."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from ..sessions.json_codec import JSON, well_formed
from ..sessions.principals.rules import Membership
from ..sessions.records import Principal
from .config.auth import DEFAULT_ROLE, ROLES, AuthSettings, Role
from .refusals import TokenInvalid
from .scopes import CONTROL, SCOPES, scopes_in

LEEWAY_SECONDS: Final = 30.0
"""Seconds by which the clock of an issuer may differ from ours."""
SUBJECT_CHARACTERS: Final = 255
MAX_GROUPS: Final = 1000
_PORTS: Final = {"https": ":443", "http": ":80"}
_MCP: Final = re.compile(r"/(?:sse|s/[^/?#]+/mcp)\Z")
"""The end of the URLs at which MCP is served beside /mcp."""
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash")


class VerifiedCaller(AuthenticatedUser):
    """The caller that a verified token names. It holds no part of the token, and does not change.

    The verifier makes it, the request carries it as the user of its scope, and to the SDK it is a user.
    """

    def __init__(
        self,
        principal: Principal,
        scopes: Sequence[str] = SCOPES,
        *,
        groups: Sequence[str] = (),
        role: Role = DEFAULT_ROLE,
        expires_at: int | None = None,
        resource: str | None = None,
        act: object = None,
    ) -> None:
        """`act` is the claim of those who act for the caller (RFC 8693 4.1), for the audit log."""
        # The SDK gives a transport session to those with the same client, issuer and subject alone.
        access_token = AccessToken(
            token="",
            client_id=principal.client_id,
            scopes=list(scopes),
            expires_at=expires_at,
            subject=principal.subject,
            claims={"iss": principal.issuer},
        )
        super().__init__(access_token)
        self.principal = principal
        self.groups = tuple(groups)
        self.role: Role = role
        self.expires_at = expires_at
        """When its token expires; None for a static token."""
        self.resource = resource
        self.act = act

    @property
    def membership(self) -> Membership:
        """The groups and the role, with the end of the token."""
        ends: dict[str, float] = {}
        if self.expires_at:
            ends = dict.fromkeys(self.groups, self.expires_at)
        return Membership(self.groups, self.role, ends)


class ClaimChecks:
    """The checks of claims that one server makes."""

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._audience = {normal_resource(audience) for audience in settings.audience}

    def caller(self, claims: JSON, issuer: str, now: float) -> VerifiedCaller:
        """Return the caller whom the claims of a token of `issuer` name.

        Raises:
            TokenInvalid: the token is not for this server, not for now, or no access token.
        """
        try:
            return self._caller(claims, issuer, now)
        except TokenInvalid as error:
            subject: object = claims.get(self._settings.subject_claim)
            if not isinstance(subject, str):
                raise
            principal = Principal(issuer=issuer, subject=subject[:SUBJECT_CHARACTERS])
            raise TokenInvalid(str(error), who=principal.words) from None

    def _caller(self, claims: JSON, issuer: str, now: float) -> VerifiedCaller:
        expires_at = _check_times(claims, now)
        self._check_audience(claims.get("aud"))
        if "cnf" in claims:
            raise TokenInvalid("it is bound to a key of its client, which cannot be checked")
        kind: object = claims.get("typ", "Bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise TokenInvalid("its claim typ is not Bearer")
        if any(name in claims for name in _ID_TOKEN_CLAIMS):
            raise TokenInvalid("it is an ID token")
        return self._named(
            claims,
            issuer,
            _client_id(claims),
            scopes_in(claims["scope"] if "scope" in claims else claims.get("scp")),
            expires_at=expires_at,
        )

    def _named(
        self,
        claims: JSON,
        issuer: str,
        client_id: str,
        scopes: Sequence[str],
        *,
        expires_at: int | None = None,
        resource: str | None = None,
    ) -> VerifiedCaller:
        """Return the caller with the subject, the groups and the actors of the claims."""
        _text_claim(claims, "sub")
        subject, groups = _text_claim(claims, self._settings.subject_claim), self._groups(claims)
        return VerifiedCaller(
            Principal(issuer=issuer, subject=subject, client_id=client_id),
            scopes,
            groups=groups,
            role=self.role(groups),
            expires_at=expires_at,
            resource=resource,
            act=claims.get("act"),
        )

    def person(
        self, claims: JSON, issuer: str, *, client_id: str, nonce: str, now: float
    ) -> VerifiedCaller:
        """Return the person whom the claims of an ID token of `issuer` name, with the scope to manage sessions.

        Raises:
            TokenInvalid: the token is not for this client and its nonce, or not for now.
        """
        _check_times(claims, now)
        if claims.get("iss") != issuer:
            raise TokenInvalid("it is of another issuer")
        audiences = _audiences(claims.get("aud"))
        party: object = claims.get("azp", client_id if len(audiences) == 1 else None)
        if client_id not in audiences or party != client_id:
            raise TokenInvalid("it is for another client")
        if claims.get("nonce") != nonce:
            raise TokenInvalid("its nonce is wrong")
        return self._named(claims, issuer, client_id, scopes_in(CONTROL))

    def _check_audience(self, value: object) -> str:
        """Return the audience of a token that is ours."""
        for audience in _audiences(value):
            if isinstance(audience, str) and normal_resource(audience) in self._audience:
                return audience
        raise TokenInvalid("its audience is not in auth.audience")

    def _groups(self, claims: JSON) -> list[str]:
        value: object = claims.get(self._settings.groups_claim)
        groups = cast("list[object]", value) if isinstance(value, list) else [value]
        return [well_formed(group) for group in groups[:MAX_GROUPS] if isinstance(group, str)]

    def role(self, groups: Iterable[str]) -> Role:
        """Return the highest role of the groups."""
        roles = self._settings.roles
        found: list[Role] = [roles[group] for group in groups if group in roles]
        return max([*found, DEFAULT_ROLE], key=ROLES.index)

    def asserted(
        self, claims: JSON, issuer: str, *, audience: str, client_id: str, now: float
    ) -> VerifiedCaller:
        """Return the person whom an identity assertion of `issuer` names to a client of the authorization server `audience`.

        Raises:
            TokenInvalid: the assertion is for another server or another client, or not for now.
        """
        expires_at = _check_times(claims, now)
        if claims.get("iss") != issuer:
            raise TokenInvalid("it is of another issuer")
        if _audiences(claims.get("aud")) != [audience]:
            raise TokenInvalid("it is for another authorization server")
        if claims.get("client_id") != client_id:
            raise TokenInvalid("it is for another client")
        _text_claim(claims, "jti")
        return self._named(
            claims,
            issuer,
            client_id,
            scopes_in(claims.get("scope")),
            expires_at=expires_at,
            resource=self._check_audience(claims.get("resource")),
        )


def normal_resource(uri: str) -> str:
    """Return the resource that a URL names: all URLs of MCP at one server are the same resource.

    Scheme and host are in lower case, the port is left out if it is that of the scheme, and so is a slash at the end.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    if parts.scheme not in _PORTS or not parts.netloc:
        return uri
    rest = uri[len(parts.scheme) + 3 + len(parts.netloc) :]
    host = parts.netloc.lower().removesuffix(_PORTS[parts.scheme])
    return f"{parts.scheme}://{host}{_MCP.sub('/mcp', rest.removesuffix('/'))}"


def _audiences(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _check_times(claims: JSON, now: float) -> int:
    """Return the time at which a token expires."""
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise TokenInvalid("it has no exp")
    if now >= expires_at + LEEWAY_SECONDS:
        raise TokenInvalid("it has expired")
    for name in ("nbf", "iat"):
        if (_time(claims, name) or 0.0) > now + LEEWAY_SECONDS:
            raise TokenInvalid(f"its {name} is in the future")
    return int(expires_at)


def _time(claims: JSON, name: str) -> float | None:
    value: Any = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e12:
        raise TokenInvalid(f"its {name} is no time")
    if not math.isfinite(value):
        raise TokenInvalid(f"its {name} is no time")
    return float(value)


def _text_claim(claims: JSON, name: str) -> str:
    value: object = claims.get(name)
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise TokenInvalid(f"it has no {name}")
    if len(value) > SUBJECT_CHARACTERS:
        raise TokenInvalid(f"its {name} is too long")
    return value


def _client_id(claims: JSON) -> str:
    names = ("client_id", "azp", "appid", "cid")
    return next((value for name in names if isinstance(value := claims.get(name), str)), "")[:255]
