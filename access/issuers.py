"""The issuers whose tokens a server accepts."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from mcp.server.auth.provider import AccessToken

from .claims import ClaimChecks
from .config.auth import AuthSettings
from .errors import TokenInvalid, VerifierUnavailable
from .introspection import Introspection
from .jwt_tokens import SignedTokens, UnverifiedToken, parse_jwt
from .signing_keys import SigningKeys


class Issuers:
    """Has each token checked by the issuer that it names; an opaque one by those that can be asked, in their order."""

    def __init__(self, settings: AuthSettings, *, clock: Callable[[], float]) -> None:
        self._checks = ClaimChecks(settings)
        self._signed: dict[str, SignedTokens] = {}
        self._keys: list[SigningKeys] = []
        self._asked: dict[str, Introspection] = {}
        for issuer in settings.issuers:
            if issuer.introspection_endpoint:
                self._asked[issuer.issuer] = Introspection(issuer, clock=clock)
            else:
                keys = SigningKeys(issuer, clock=clock)
                self._keys.append(keys)
                self._signed[issuer.issuer] = SignedTokens(issuer, keys)

    async def preload_keys(self) -> None:
        """Fetch the keys of all issuers at once. Log a warning for each that does not answer."""
        async with anyio.create_task_group() as tasks:
            for keys in self._keys:
                tasks.start_soon(keys.preload)

    async def caller(self, token: str, now: float, asker: str) -> AccessToken:
        """Return the caller of a token. `now` is in seconds since 1970; `asker` is whose share a question counts to.

        Raises:
            TokenInvalid: no issuer accepts the token.
            VerifierUnavailable: an issuer that might accept it does not answer.
        """
        unverified = parse_jwt(token)
        if unverified is None:
            return await self._opaque(token, list(self._asked), now, asker)
        return await self._signed_by(unverified, unverified.claims.get("iss"), now, asker)

    async def _signed_by(
        self, token: UnverifiedToken, issuer: object, now: float, asker: str
    ) -> AccessToken:
        if isinstance(issuer, str) and issuer in self._asked:
            return await self._opaque(token.text, [issuer], now, asker)
        if not isinstance(issuer, str) or issuer not in self._signed:
            raise TokenInvalid("its issuer is not in auth.issuers")
        return self._checks.caller(await self._signed[issuer].claims(token), issuer, now)

    async def _opaque(self, token: str, issuers: list[str], now: float, asker: str) -> AccessToken:
        refusal: Exception = TokenInvalid("it is unknown")
        for issuer in issuers:
            try:
                claims = await self._asked[issuer].claims(token, asker)
                return self._checks.caller(claims, issuer, now)
            except TokenInvalid as error:
                # While another issuer cannot be asked, the token may be one of its.
                refusal = refusal if isinstance(refusal, VerifierUnavailable) else error
            except VerifierUnavailable as error:
                refusal = error
        raise refusal
