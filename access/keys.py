"""Signed access tokens (RFC 9068), and the keys of the issuer that signs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import get_default_algorithms
from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError
from jwt.utils import base64url_decode

from ..sessions.json_codec import JSON, loads
from ..sessions.owned_map import BoundedMap
from .config.auth import IssuerSettings
from .issuer_requests import find_jwks_uri, get_json
from .refusals import TokenInvalid, VerifierUnavailable

logger = logging.getLogger("statehold.server")

FETCH_SECONDS: Final = 30.0
"""Seconds between two fetches, unless there are no keys at all."""
FIRST_FETCH_SECONDS: Final = 2.0
"""Seconds between two fetches while there are no keys."""
REFRESH_SECONDS: Final = 600.0
"""Age at which keys are fetched again, to notice those that the issuer has withdrawn."""
ABSENT_SECONDS: Final = 120.0
"""Seconds for which a key id that the issuer did not have is not looked for again."""
MAX_ABSENT_IDS: Final = 1000
ANSWER_SECONDS: Final = 10.0
"""Seconds for the requests of one fetch."""
RSA_BITS: Final = 2048
MAX_KEYS: Final = 100

_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}

_FOREIGN_KEYS: Final = ("jwk", "jku", "x5u")
"""Parts of the head that name a key. No issuer needs them, as its keys are known."""


class SigningKeys:
    """Fetches keys, one fetch at a time, and keeps the last ones while the issuer does not answer.

    `clock` returns seconds that only rise.
    """

    def __init__(
        self, settings: IssuerSettings, *, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._issuer = settings.issuer
        self._configured_uri = settings.jwks_uri
        self._uri = ""
        self._clock = clock
        self._fetching = anyio.Lock()
        self._jwks: list[JSON] = []
        self._keys: dict[tuple[str | None, str], Any] = {}
        self._absent = BoundedMap[str | None, float](MAX_ABSENT_IDS)
        self._tried_at: float | None = None
        self._fetched_at: float | None = None
        self._problem: str | None = None
        """The failure of the last fetch; None if it succeeded."""

    async def find(self, key_id: str | None, algorithm: str) -> Any:
        """Return the key with which a token is to be verified.

        Raises:
            TokenInvalid: the issuer has no such key.
            VerifierUnavailable: the keys cannot be fetched, and it is none of those that are known.
        """
        key, asked_at = self._known(key_id, algorithm), self._clock()
        if key is not None and (not self._is_stale() or self._fetching.locked()):
            return key
        if key is None and asked_at < self._absent.get(key_id, 0.0):
            raise TokenInvalid("its key is unknown")
        await self._fetch(unless_known=None if key is not None else (key_id, algorithm))
        key = self._known(key_id, algorithm) or (key if self._problem is not None else None)
        if key is not None:
            return key
        if self._problem is not None:
            raise VerifierUnavailable(self._problem)
        if self._fetched_at is not None and self._fetched_at >= asked_at:
            self._absent[key_id] = self._clock() + ABSENT_SECONDS
        raise TokenInvalid("its key is unknown")

    async def preload(self) -> None:
        """Fetch the keys before the first token comes. Log a warning if the issuer does not answer."""
        await self._fetch(unless_known=None)

    async def _fetch(self, unless_known: tuple[str | None, str] | None) -> None:
        """Fetch the keys, unless that was done a short time ago, or another caller has just brought the key."""
        if not self._is_due():
            return
        async with self._fetching:
            if not self._is_due() or (unless_known is not None and self._known(*unless_known)):
                return
            try:
                with anyio.fail_after(ANSWER_SECONDS):
                    jwks = await self._read()
            except (VerifierUnavailable, TimeoutError) as error:
                self._uri, self._problem = "", str(error) or "no answer in time"
                logger.warning("the keys of the issuer %s: %s", self._issuer, self._problem)
            else:
                self._jwks, self._problem = jwks, None
                self._fetched_at = self._clock()
                self._keys.clear()
            # Not before: a caller that leaves during the fetch would keep the next one from fetching.
            self._tried_at = self._clock()

    async def _read(self) -> list[JSON]:
        self._uri = self._uri or self._configured_uri or await find_jwks_uri(self._issuer)
        keys: object = (await get_json(self._uri)).get("keys")
        if not isinstance(keys, list):
            raise VerifierUnavailable(f"{self._uri} has no keys")
        return [key for key in cast("list[Any]", keys)[:MAX_KEYS] if isinstance(key, dict)]

    def _is_due(self) -> bool:
        pause = FIRST_FETCH_SECONDS if self._fetched_at is None else FETCH_SECONDS
        return self._tried_at is None or self._clock() - self._tried_at >= pause

    def _is_stale(self) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at >= REFRESH_SECONDS

    def _known(self, key_id: str | None, algorithm: str) -> Any:
        """Return a key. A token without a key id is verified with the only key that fits."""
        found = self._keys.get((key_id, algorithm))
        if found is not None:
            return found
        fitting = [
            jwk
            for jwk in self._jwks
            if fits(jwk, algorithm) and (key_id is None or jwk.get("kid") == key_id)
        ]
        if not fitting or (key_id is None and len(fitting) > 1):
            return None
        try:
            key = get_default_algorithms()[algorithm].from_jwk(fitting[0])
        except (PyJWTError, ValueError, TypeError, KeyError):
            return None
        if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS:
            return None
        self._keys[key_id, algorithm] = key
        return key


def fits(jwk: JSON, algorithm: str) -> bool:
    """Whether a key may verify signatures of an algorithm. A private or a symmetric key never may."""
    operations: object = jwk.get("key_ops")
    return (
        jwk.get("kty") == _KEY_TYPES[algorithm[:2]]
        and jwk.get("crv") == _CURVES.get(algorithm, jwk.get("crv"))
        and "d" not in jwk
        and jwk.get("use", "sig") == "sig"
        and jwk.get("alg", algorithm) == algorithm
        and (not isinstance(operations, list) or "verify" in operations)
    )


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
