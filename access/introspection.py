"""Access tokens that only their issuer understands (RFC 7662)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from ..sessions.json_codec import JSON
from ..sessions.owned_map import OwnedMap
from .config.auth import IssuerSettings
from .errors import TokenInvalid, VerifierUnavailable
from .issuer_requests import StrangersForms

INACTIVE_SECONDS: Final = 60.0
"""Seconds for which a token that was not active is not asked about again."""
INACTIVE_TOKENS: Final = 10_000


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
        self._inactive = OwnedMap[bytes, float](INACTIVE_TOKENS)
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
