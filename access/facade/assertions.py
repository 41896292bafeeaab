"""Identity assertions (ID-JAG): tokens of the identity provider that name a person to a client of this server."""

from __future__ import annotations

from typing import Final

from mcp.server.auth.provider import AccessToken

from ..claims import LEEWAY_SECONDS, ClaimChecks
from ..config.auth import IssuerSettings
from ..errors import TokenInvalid
from ..jwt_tokens import SignedTokens, parse_jwt
from ..signing_keys import SigningKeys
from .logins import FacadeLogins

TYPE: Final = "oauth-id-jag+jwt"
LONGEST_SECONDS: Final = 3600.0
"""The longest lifetime of an accepted assertion: for so long its id is kept."""
_CHARACTERS: Final = 8192


class IdentityAssertions:
    """Checks the assertions of one issuer, each of which is accepted once. `audience` is the URL of this server."""

    def __init__(
        self,
        issuer: IssuerSettings,
        keys: SigningKeys,
        checks: ClaimChecks,
        logins: FacadeLogins,
        audience: str,
    ) -> None:
        self._issuer = issuer.issuer
        self._tokens = SignedTokens(issuer, keys, (TYPE,))
        self._checks = checks
        self._logins = logins
        self._audience = audience

    async def person(self, assertion: str, client_id: str, now: float) -> AccessToken:
        """Return the person whom an assertion names to a client, and use it.

        Raises:
            TokenInvalid: the assertion is not accepted, or was used.
            VerifierUnavailable: the keys of the issuer cannot be fetched.
        """
        token = parse_jwt(assertion) if len(assertion) <= _CHARACTERS else None
        if token is None:
            raise TokenInvalid("it is no JWT")
        claims = await self._tokens.claims(token)
        person = self._checks.asserted(
            claims, self._issuer, audience=self._audience, client_id=client_id, now=now
        )
        # `exp` may have a fraction.
        expires_at = (person.expires_at or 0) + 1 + LEEWAY_SECONDS
        if expires_at > now + LONGEST_SECONDS + 1 + LEEWAY_SECONDS:
            raise TokenInvalid("it lives too long")
        if not await self._logins.use_assertion(self._issuer, claims["jti"], expires_at):
            raise TokenInvalid("it was used before")
        return person
