"""The issuers whose tokens a server accepts, and the check of tokens that only their issuer understands (RFC 7662)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import anyio

from ..sessions.json_codec import JSON
from ..sessions.owned_map import OwnedMap
from .claims import ClaimChecks, VerifiedCaller
from .config.auth import AuthSettings, IssuerSettings
from .issuer_requests import StrangersForms
from .keys import SignedTokens, SigningKeys, UnverifiedToken, parse_jwt
from .refusals import TokenInvalid, VerifierUnavailable

INACTIVE_SECONDS: Final = 60.0
"""Seconds for which a token that was not active is not asked about again."""
MAX_INACTIVE_TOKENS: Final = 10_000


class Introspection:
    """Asks one issuer about tokens. It keeps the digests of inactive ones; the Verifier keeps the active ones.

    `clock` returns seconds that only rise.
    """

    def __init__(self, settings: IssuerSettings, *, clock: Callable[[], float]) -> None:
        assert settings.client_secret is not None
        self._issuer = settings.issuer
        self._endpoint = settings.introspection_endpoint
        self._client = settings.client_id, settings.client_secret.get_secret_value()
        self._clock = clock
        self._inactive = OwnedMap[bytes, float](MAX_INACTIVE_TOKENS)
        """The ends of the times for which inactive tokens are kept, by the asker."""
        self._forms = StrangersForms()

    async def claims(self, token: str, asker: str) -> JSON:
        """Return the claims of an active access token. The question counts to the share of `asker`.

        Raises:
            TokenInvalid: it is not active, of another issuer, or no bearer token.
            VerifierUnavailable: the issuer does not answer, or too many questions wait.
        """
        digest = hashlib.sha256(token.encode()).digest()
        if self._clock() < (self._inactive.get(digest) or 0.0):
            raise TokenInvalid("its issuer says that it is not active")
        form = {"token": token, "token_type_hint": "access_token"}
        claims = await self._forms.post(asker, self._endpoint, form, self._client)
        active: Any = claims.get("active")
        if not isinstance(active, bool):
            raise VerifierUnavailable(f"{self._endpoint} does not say whether a token is active")
        if not active:
            self._inactive.put(asker, digest, self._clock() + INACTIVE_SECONDS)
            raise TokenInvalid("its issuer says that it is not active")
        if claims.get("iss", self._issuer) != self._issuer:
            raise TokenInvalid("it is of another issuer")
        kind: object = claims.get("token_type", "Bearer")
        if not isinstance(kind, str) or kind.lower() not in ("bearer", "access_token"):
            raise TokenInvalid("it is no bearer token")
        return claims


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

    async def caller(self, token: str, now: float, asker: str) -> VerifiedCaller:
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
    ) -> VerifiedCaller:
        if isinstance(issuer, str) and issuer in self._asked:
            return await self._opaque(token.text, [issuer], now, asker)
        if not isinstance(issuer, str) or issuer not in self._signed:
            raise TokenInvalid("its issuer is not in auth.issuers")
        return self._checks.caller(await self._signed[issuer].claims(token), issuer, now)

    async def _opaque(
        self, token: str, issuers: list[str], now: float, asker: str
    ) -> VerifiedCaller:
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
