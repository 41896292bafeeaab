"""Services that the sessions of an owner cannot open now, and how often they try them again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from ..clock import Clock
from ..concurrency import RaceLost, race
from ..errors import ConnectionLost, LoginUnavailable, ServiceUnavailable, SessionError
from ..metrics.instruments import Metrics
from ..owned_map import BoundedMap
from .connection import LiveConnection

RETRY_SECONDS: Final = 5.0
"""Seconds between two tries that calls make to open a service, in all sessions of an owner together."""
STRIKES: Final = 2
"""Times that others open a service while one session fails, after which that session alone is at fault."""
MAX_KNOWN: Final = 10_000
"""Sessions of one owner whose failures to open one service are remembered."""
_NEVER: Final = float("-inf")


@dataclass(slots=True)
class _Failure:
    """The failures of one session in a row, from the loss of its connection on."""

    error: SessionError
    turn: int
    """The turn of the service in which it failed last."""
    strikes: int = 0
    tries: int = 0
    tried_at: float = _NEVER
    retry_at: float = _NEVER
    """Until then, calls of the session wait."""


@dataclass(slots=True)
class _Service:
    """The failures of the sessions of one owner to open one service. A turn ends when a session of any owner opens it."""

    failures: BoundedMap[str, _Failure] = field(
        default_factory=lambda: BoundedMap[str, _Failure](MAX_KNOWN)
    )
    turn: int = 0
    failing: int = 0
    """Sessions that failed in this turn and are not at fault themselves."""
    tried_at: float = _NEVER
    retry_at: float = _NEVER
    """Until then, calls of these sessions wait while the service is away."""
    error: SessionError | None = None
    trial: LiveConnection | None = None
    """The connection that was started last."""
    opened: anyio.Event = field(default_factory=anyio.Event)
    """Set and replaced when a session has opened it."""

    @property
    def is_away(self) -> bool:
        """Whether several sessions fail, and none has opened it meanwhile. One alone must not keep others from trying."""
        return self.failing > 1

    def failure_of(self, key: str, error: SessionError) -> _Failure:
        """Return the failure of a session in this turn, with a new error."""
        failure = self.failures.get(key)
        if failure is None:
            failure = self.failures[key] = _Failure(error, self.turn)
            self.failing += 1
        elif failure.turn != self.turn:
            failure.strikes += _has_tried(failure)
            failure.turn = self.turn
            self.failing += failure.strikes < STRIKES
        failure.error = error
        return failure

    def end_turn(self, key: str) -> None:
        """Let every session try: one of them has opened the service."""
        self.failures.pop(key, None)
        self.turn += 1
        self.failing, self.tried_at, self.retry_at, self.error = 0, _NEVER, _NEVER, None
        for failure in self.failures.values():
            failure.retry_at = _NEVER
        self.opened.set()
        self.opened = anyio.Event()


class Outages:
    """The services of one node that cannot be opened. It lives as long as the connector.

    While a service is away for an owner, one of its sessions at a time tries to open it. A call tries at once after a loss,
    and then not more often than every RETRY_SECONDS for all sessions of the owner together: a call waits for its time, and
    shares the outcome of a try that runs then. The sessions of other owners try for themselves, since an owner may have a
    server fail in its own sessions. Once one session has opened the service, all may. A session that fails alone, which may
    be its own fault, has `attempts` tries by calls and one more before its calls wait in the same way.

    A session is named by a key, and `owner` is the key of its principal.
    """

    def __init__(self, clock: Clock, attempts: int, metrics: Metrics) -> None:
        self._clock = clock
        self._attempts = attempts
        self._metrics = metrics
        self._services: dict[str, dict[str, _Service]] = {}
        """By service and owner."""

    def record_loss(self, name: str, key: str, owner: str, reason: str) -> None:
        """Record that a session lost its connection to a service."""
        self._metrics.losses.add(name)
        error = ServiceUnavailable(f"The connection to {name} was lost: {reason}.")
        self._service(name, owner).failure_of(key, error)

    def watch_opening(
        self, name: str, key: str, owner: str, *, by_call: bool
    ) -> Callable[[SessionError | None], None]:
        """Return the function that is called with the outcome of an opening which begins now.

        A missing key is no outage, nor is a loss.
        """
        began_at = self._clock.now()

        def record(error: SessionError | None) -> None:
            code = "" if error is None else error.code
            self._metrics.openings.record(self._clock.now() - began_at, name, code)
            if error is None:
                self.record_opened(name, key)
            elif not isinstance(error, ConnectionLost | LoginUnavailable):
                self.record_failure(name, key, owner, error, by_call=by_call)

        return record

    def record_failure(
        self, name: str, key: str, owner: str, error: SessionError, *, by_call: bool
    ) -> None:
        """Record that a session could not open a service."""
        service, now = self._service(name, owner), self._clock.now()
        failure = service.failure_of(key, error)
        failure.tried_at = now
        failure.tries += by_call
        if by_call and failure.tries > self._attempts:
            failure.retry_at = now + RETRY_SECONDS
        if failure.strikes < STRIKES:
            service.tried_at, service.error = now, error
            if by_call:
                service.retry_at = now + RETRY_SECONDS

    def record_opened(self, name: str, key: str) -> None:
        """Record that a session has opened a service."""
        services = self._services.get(name, {})
        for owner, service in list(services.items()):
            service.end_turn(key)
            if not service.failures:
                del services[owner]

    def record_start(self, live: LiveConnection, owner: str) -> None:
        """Record that a connection is being opened, after admit() and without a wait in between."""
        self._service(live.service.name, owner).trial = live

    async def admit(self, name: str, key: str, owner: str, *, spacing: float | None = None) -> None:
        """Return when a session may try to open a service. While it is away, a try that runs is waited for.

        `spacing`: for an automatic recovery, the seconds since the last try; None for a call, which waits for its time.

        Raises:
            ServiceUnavailable: a try that was waited for has failed, or it is not yet time for an automatic recovery.
        """
        has_waited = False
        while (service := self._services.get(name, {}).get(owner)) is not None:
            now, own = self._clock.now(), service.failures.get(key)
            due_at = _NEVER if own is None else _due_at(own, spacing)
            if service.is_away:
                due_at = max(due_at, _due_at(service, spacing))
            if due_at > now:
                if spacing is not None or has_waited:
                    raise _refusal(name, service, own)
                with suppress(RaceLost):
                    await race(service.opened.wait, partial(self._clock.sleep_until, due_at))
                continue
            trial = service.trial
            if not service.is_away or trial is None or trial.phase != "opening":
                return
            await trial.wait_until_ended()
            has_waited = True

    def _service(self, name: str, owner: str) -> _Service:
        return self._services.setdefault(name, {}).setdefault(owner, _Service())


def _has_tried(failure: _Failure | None) -> bool:
    return failure is not None and failure.tried_at != _NEVER


def _due_at(failures: _Failure | _Service, spacing: float | None) -> float:
    return failures.retry_at if spacing is None else failures.tried_at + spacing


def _refusal(name: str, service: _Service, own: _Failure | None) -> ServiceUnavailable:
    error = own.error if own is not None else ServiceUnavailable(f"{name} could not be opened.")
    if service.error is not None and not _has_tried(own):
        error = service.error
    cause = error.message if name in error.message else f"{name}: {error.message}"
    return ServiceUnavailable(cause, recovery=error.recovery)
