"""Access tokens that are signed by their issuer (RFC 9068)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError
from jwt.utils import base64url_decode

from ..sessions.json_codec import JSON, loads
from .config.auth import IssuerSettings
from .errors import TokenInvalid
from .signing_keys import SigningKeys

_FOREIGN_KEYS: Final = ("jwk", "jku", "x5u")
"""Parts of the head that name a key. No issuer needs them, as its keys are known."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token in the form of a JWT, whose signature is not verified yet."""

    text: str
    header: JSON
    claims: JSON


def parse_jwt(token: str) -> UnverifiedToken | None:
    """Return a token in the form of a signed JWT, None if it has another form."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        header, claims = (loads(base64url_decode(part)) for part in parts[:2])
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or not isinstance(claims, dict) or "alg" not in header:
        return None
    return UnverifiedToken(token, cast("JSON", header), cast("JSON", claims))


class SignedTokens:
    """Verifies the signed tokens of one issuer."""

    def __init__(
        self, settings: IssuerSettings, keys: SigningKeys, types: Sequence[str | None] = ()
    ) -> None:
        """`types` are the accepted values of `typ`, None for none. Default: those of `settings.typ`."""
        self._algorithms: list[str] = list(settings.algorithms)
        plain = () if settings.typ == "at+jwt" else ("jwt", None)
        self._types = types or ("at+jwt", *plain)
        self._keys = keys
        self._signatures = PyJWS(algorithms=self._algorithms)

    async def claims(self, token: UnverifiedToken) -> JSON:
        """Return the claims of a token after a check of its head and its signature.

        Raises:
            TokenInvalid: it is not signed by the issuer, or is no access token.
            VerifierUnavailable: the keys of the issuer cannot be fetched.
        """
        header = token.header
        algorithm, key_id = header["alg"], header.get("kid")
        if algorithm not in self._algorithms:
            raise TokenInvalid("its algorithm is not accepted")
        self._check_type(header.get("typ"))
        if "crit" in header or "b64" in header:
            raise TokenInvalid("its head has an unknown critical extension")
        if any(name in header for name in _FOREIGN_KEYS):
            raise TokenInvalid("it names a key of its own")
        if not isinstance(key_id, str | None):
            raise TokenInvalid("its kid is no string")
        key = await self._keys.find(key_id, algorithm)
        try:
            self._signatures.decode_complete(token.text, key, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenInvalid("its signature is wrong") from None
        return token.claims

    def _check_type(self, value: object) -> None:
        kind = value.lower().removeprefix("application/") if isinstance(value, str) else value
        if kind not in self._types:
            raise TokenInvalid("its typ is not accepted")
