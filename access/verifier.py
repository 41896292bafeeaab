"""The check of bearer tokens: static ones, signed ones, and those that their issuer is asked about."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Container, Hashable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import anyio

from ..sessions.owned_map import OwnedMap
from .claims import VerifiedCaller
from .config.auth import AuthSettings
from .refusals import Backoff, PrincipalRevoked, TokenInvalid, is_guessable, network_of
from .tokens import StaticTokens

if TYPE_CHECKING:
    from .issuers import Issuers

TOKEN_CHARACTERS: Final = 8192
"""The length of the longest accepted token."""
CACHE_SECONDS: Final = 60.0
"""Seconds after which a token is verified anew. A token that was revoked may work so long."""
MAX_CACHED_TOKENS: Final = 10_000

T = TypeVar("T")


class OwnTokens(Protocol):
    """The access tokens that this server issues itself."""

    def accepts(self, token: str) -> bool:
        """Whether a token has their form."""
        ...

    async def caller(self, token: str, now: float) -> VerifiedCaller:
        """Return the caller of such a token.

        Raises:
            TokenInvalid: the token is not accepted.
            VerifierUnavailable: the token cannot be checked now.
        """
        ...


class Verifier:
    """Verifies the tokens of one process, and keeps the callers of verified ones, by the SHA-256 of the token.

    `now` returns the seconds since 1970, and `clock` seconds that only rise. `on_verified` is called with the
    caller of each token, when it is verified. The tokens of the principals whose keys are in `revoked`, which may
    change, are refused.
    """

    def __init__(
        self,
        tokens: StaticTokens | None,
        settings: AuthSettings,
        own: OwnTokens | None = None,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = anyio.current_time,
        on_verified: Callable[[VerifiedCaller], None] | None = None,
        revoked: Container[str] = frozenset(),
    ) -> None:
        self.static = tokens
        """The static tokens, None if there are none."""
        self.backoff = Backoff()
        self._issuers = _issuers_of(settings, clock) if settings.enabled else None
        self._own = own
        self._now = now
        self._on_verified = on_verified
        self._revoked = revoked
        self._callers = OwnedMap[bytes, tuple[VerifiedCaller, float]](MAX_CACHED_TOKENS)
        """The callers of the last tokens of each principal, and the times until which they are used."""
        self._flights = SingleFlight[VerifiedCaller]()

    def known(self, token: str) -> VerifiedCaller | None:
        """Return the caller of a token that was verified a short time ago and is not revoked, else None."""
        user = self._cached(token) if self._callers else None
        if self._revoked and user is not None:
            return None if user.principal.key in self._revoked else user
        return user

    async def verify(self, token: str, address: str = "") -> VerifiedCaller:
        """Return the caller of a token.

        A token that might have been guessed is looked at after the delay of its network. Who calls it tells `backoff` of
        tokens that are wrong.

        Raises:
            TokenInvalid: the token is not accepted.
            PrincipalRevoked: its principal is revoked.
            VerifierUnavailable: the token cannot be checked now.
        """
        user = self._cached(token) or self._static_user(token)
        if user is None:
            known = self._callers.get(_digest(token))
            asker = network_of(address) if known is None else known[0].principal.key
            is_own = self._own is not None and self._own.accepts(token)
            # A token of our own is sealed, and checked here.
            if known is None and not is_own and is_guessable(token):
                await self.backoff.hold(address)
            self._require_issuers(token)
            # An issuer is asked once about a token that comes in many requests.
            user = await self._flights.run(token, partial(self._ask_issuer, token, asker))
        if self._revoked and user.principal.key in self._revoked:
            raise PrincipalRevoked(user.principal)
        return user

    async def preload_keys(self) -> None:
        """Fetch the keys of all issuers. Log a warning for each that does not answer."""
        if self._issuers is not None:
            await self._issuers.preload_keys()

    def record_caller(self, caller: VerifiedCaller) -> None:
        """Record the groups and the role of a caller, from which its limits follow."""
        if self._on_verified is not None:
            self._on_verified(caller)

    def _cached(self, token: str) -> VerifiedCaller | None:
        found = self._callers.get(_digest(token))
        return found[0] if found is not None and self._now() < found[1] else None

    def _require_issuers(self, token: str) -> None:
        """Raises TokenInvalid when no issuer has to be asked about a token."""
        if self.static is not None and (self._issuers is None or self.static.find(token)):
            kind, detail = self.static.refusal(token)
            raise TokenInvalid(detail, kind)
        if self._issuers is None:
            raise TokenInvalid("")
        if len(token) > TOKEN_CHARACTERS or not token.isascii():
            raise TokenInvalid("it is too long, or no token")

    async def _ask_issuer(self, token: str, asker: str) -> VerifiedCaller:
        assert self._issuers is not None
        now = self._now()
        if self._own is not None and self._own.accepts(token):
            user = await self._own.caller(token, now)
        else:
            user = await self._issuers.caller(token, now, asker)
        self.record_caller(user)
        until = min(now + CACHE_SECONDS, user.expires_at or 0)
        self._callers.put(user.principal.key, _digest(token), (user, until))
        return user

    def _static_user(self, token: str) -> VerifiedCaller | None:
        found = None if self.static is None else self.static.valid(token)
        if found is None:
            return None
        user = VerifiedCaller(found.principal, role=found.role)
        self.record_caller(user)
        return user


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _issuers_of(settings: AuthSettings, clock: Callable[[], float]) -> Issuers:
    # Imported here: a process without issuers needs neither PyJWT nor cryptography for its tokens.
    from .issuers import Issuers

    return Issuers(settings, clock=clock)


def verifier_of(
    tokens: StaticTokens | None,
    settings: AuthSettings,
    own: OwnTokens | None = None,
    on_verified: Callable[[VerifiedCaller], None] | None = None,
    revoked: Container[str] = frozenset(),
) -> Verifier | None:
    """Return the verifier of a process, None if its callers need no token."""
    if tokens is None and not settings.enabled:
        return None
    return Verifier(tokens, settings, own, on_verified=on_verified, revoked=revoked)


class SingleFlight(Generic[T]):
    """Runs the work of each key once at a time, and gives its result or its error to all who wait for it.

    The first caller runs the work. If that one is cancelled, the next one runs it.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def run(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the work, or raise its error."""
        while (flight := self._flights.get(key)) is not None:
            await flight.ended.wait()
            if flight.error is not None:
                # Otherwise each raise would add its frames.
                raise flight.error.with_traceback(None)
            if flight.results:
                return flight.results[0]
        flight = self._flights[key] = _Flight[T]()
        try:
            result = await work()
            flight.results.append(result)
        except Exception as error:
            flight.error = error
            raise
        finally:
            del self._flights[key]
            flight.ended.set()
        return result


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.results: list[T] = []
        """The result; empty if the work was cancelled."""
        self.error: Exception | None = None
