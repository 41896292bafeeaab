"""Refused requests: the errors, their log lines, and the delay of networks that send wrong tokens."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import ClassVar, Final

import anyio

from ..sessions.one_line import one_line
from ..sessions.owned_map import BoundedMap
from ..sessions.records import Principal
from .scopes import Scope

LOG_SECONDS: Final = 10.0
"""Seconds between two log lines of one kind."""

logger = logging.getLogger("statehold.server")

FIRST_SECONDS: Final = 0.05
"""Seconds that a network waits after its first wrong token. Each further one doubles them."""
LONGEST_SECONDS: Final = 2.0
FORGET_SECONDS: Final = 60.0
"""Seconds without a wrong token after which the delay of a network starts anew."""
MAX_NETWORKS: Final = 4096
MAX_CACHED_ADDRESSES: Final = 1024
PREFIX: Final = 64
"""Bits of an IPv6 address that one client does not choose."""
WRONG: Final = "wrong token"


class AuthError(Exception):
    """Raised when a request is refused. The text is for the log, and has no part of a token."""

    code: ClassVar[str] = "token_invalid"
    """The name of the refusal in the audit log."""
    kind: str = WRONG
    """The kind of the refusal, for the log."""

    @property
    def detail(self) -> str:
        """The reason, for the log."""
        return f"({self})"


class TokenMissing(AuthError):
    """Raised when a request has no bearer token."""

    code = "token_missing"
    kind = "no token"

    @property
    def detail(self) -> str:
        return ""


class TokenMalformed(AuthError):
    """Raised when a request has several tokens, one in its URL, or one that cannot be a token."""

    code = "token_malformed"
    kind = "malformed token"


class TokenInvalid(AuthError):
    """Raised when a token is not accepted, with the reason, and the principal of a token that its issuer did sign."""

    def __init__(self, reason: str, kind: str = WRONG, *, who: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        self._who = who

    @property
    def detail(self) -> str:
        text = str(self)
        if text and self.kind == WRONG:
            text = f"({text})"
        return f"{text} of {self._who}" if self._who else text


class PrincipalRevoked(TokenInvalid):
    """Raised when a token is right, and the access of its principal is revoked."""

    code = "principal_revoked"

    def __init__(self, principal: Principal) -> None:
        super().__init__(principal.words, "token of a revoked principal:")
        self.principal = principal


class ScopeMissing(AuthError):
    """Raised when a token does not allow an operation."""

    code = "scope_missing"
    kind = "missing scope"

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"the operation needs {scope}")
        self.scope: Scope = scope


class VerifierUnavailable(AuthError):
    """Raised when a token cannot be checked now, because its issuer does not answer."""

    code = "verifier_unavailable"
    kind = "unchecked token"


class IssuerMismatch(VerifierUnavailable):
    """Raised when the metadata at the URL of an issuer is that of another one."""


class IssuerRefused(VerifierUnavailable):
    """Raised when an issuer answers that a request to it is wrong."""


class RefusalLog:
    """The log lines of one check. `clock` returns seconds that only rise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}
        """By kind, the time of the last line, and the refusals since."""

    def add(self, kind: str, address: str, detail: str = "") -> None:
        """Log a refusal of a client, with the number of those that were left out. Kinds are few; details are any."""
        now = self._clock()
        logged_at, count = self._kinds.get(kind, (-LOG_SECONDS, 0))
        if now - logged_at < LOG_SECONDS:
            self._kinds[kind] = (logged_at, count + 1)
            return
        self._kinds[kind] = (now, 0)
        more = f" ({count} more since the last such line)" if count else ""
        logger.warning(
            "%s%s from %s%s", kind, detail and f" {one_line(detail)}", address or "?", more
        )


class Backoff:
    """The delays of networks that sent wrong tokens: before the next one is looked at, which may cost work elsewhere.

    A token that can be told right without that work is never delayed.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._failures = BoundedMap[str, tuple[int, float]](MAX_NETWORKS)
        self._refusals = RefusalLog(clock)

    async def hold(self, address: str) -> None:
        """Wait for the delay of the network of an address."""
        count, last = self._failures.get(network_of(address), (0, 0.0))
        if count and self._clock() - last < FORGET_SECONDS:
            await self._sleep(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count - 1, 10)))

    def fail(
        self, address: str, kind: str = WRONG, detail: str = "", *, is_guessable: bool = True
    ) -> None:
        """Log a wrong token, and delay the network of an address more if the token might have been guessed."""
        self._refusals.add(kind, address, detail)
        if not is_guessable:
            return
        network, now = network_of(address), self._clock()
        count, last = self._failures.get(network, (0, now))
        count = 0 if now - last >= FORGET_SECONDS else count
        self._failures[network] = (count + 1, now)


@lru_cache(MAX_CACHED_ADDRESSES)
def network_of(address: str) -> str:
    """Return the network that stands for a client in shares of strangers: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((ip, PREFIX), strict=False))


def is_guessable(token: str) -> bool:
    """Whether a token might have been guessed. The signature of one with three parts cannot be."""
    return token.count(".") != 2
