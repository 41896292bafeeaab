"""Calls of our own tools that their caller may send again after a lost answer; at most one call of an id runs.

A session remembers the calls of its services (sessions/calls/attempts.py). The calls here may create the session, so the
process remembers them: an id that was sent to this process and is not remembered has not been run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from ...sessions.calls.attempts import REMEMBERED
from ...sessions.calls.operations import ANOTHER, checked, digest_of, same
from ...sessions.calls.request import Request
from ...sessions.clock import Clock
from ...sessions.errors import ConnectionLost, OutcomeUnknown
from ...tools.own.definition import Outcome
from ..sdk.caller import Caller

KEPT: Final = 10_000
"""Ids that are remembered, with or without their result."""
RESULTS: Final = 1000
"""Results that are remembered; only the newest ids have theirs."""


class AnotherProcess(ConnectionLost):
    """Raised when a call names another process than the one that it reached; it was not run."""

    def __init__(self, instance: str) -> None:
        super().__init__(
            "Another process answers here now, and the call was not run.",
            recovery=f"Send the call again to this one: {instance}.",
        )
        self.instance = instance


@dataclass(slots=True, eq=False)
class _Call:
    digest: str
    at: float
    ended: anyio.Event = field(default_factory=anyio.Event)
    outcome: Outcome | Exception | None = None


class Repeats:
    """The outcomes of the last calls of our own tools, by principal and operation id. It lives as long as its process."""

    def __init__(self, instance: str, clock: Clock) -> None:
        self.instance = instance
        """The name of this process, unlike that of any other."""
        self._clock = clock
        self._calls: dict[tuple[str, str], _Call] = {}
        self._results: dict[tuple[str, str], None] = {}
        self._blind_until = 0.0

    async def run(
        self, request: Request, caller: Caller, work: Callable[[], Awaitable[Outcome]]
    ) -> Outcome:
        """Run `work`, or return the outcome of the earlier call with this id; wait for it if it still runs.

        The work runs to its end when its caller disconnects, since the caller may send the call again.

        Raises:
            AnotherProcess: the call names another process than this, and was not run.
            InvalidArgument: the id is malformed, or was used for another call.
            OutcomeUnknown: another process may have run the call, or its outcome is not remembered any more.
        """
        if caller.operation_id is None or caller.instance is None:
            return await work()
        key, digest = (request.principal.key, checked(caller.operation_id)), digest_of(request)
        found = self._calls.get(key)
        if found is not None:
            same(found.digest, digest)
            await found.ended.wait()
        elif caller.repeated and (
            caller.instance != self.instance or self._clock.now() < self._blind_until
        ):
            message = "The call was sent to another process; it may have taken effect."
            raise OutcomeUnknown(message, recovery=ANOTHER)
        elif caller.instance != self.instance:
            # Otherwise a repeat that reaches the named process would run there, too.
            raise AnotherProcess(self.instance)
        else:
            found = await self._run(key, digest, work)
        if found.outcome is None:
            message = "The call took effect, but its result is not remembered."
            raise OutcomeUnknown(message, recovery=ANOTHER)
        if isinstance(found.outcome, Exception):
            raise found.outcome.with_traceback(None)
        return found.outcome

    async def _run(
        self, key: tuple[str, str], digest: str, work: Callable[[], Awaitable[Outcome]]
    ) -> _Call:
        call = self._calls[key] = _Call(digest, self._clock.now())
        self._results[key] = None
        self._forget()
        try:
            with anyio.CancelScope(shield=True):
                call.outcome = await work()
        except Exception as error:
            call.outcome = error
        finally:
            call.ended.set()
        return call

    def _forget(self) -> None:
        while len(self._results) > RESULTS:
            oldest = next(iter(self._results))
            del self._results[oldest]
            if oldest in self._calls and self._calls[oldest].ended.is_set():
                self._calls[oldest].outcome = None
        while len(self._calls) > KEPT:
            call = self._calls.pop(next(iter(self._calls)))
            # Until then an id that is not remembered may be that of this call.
            self._blind_until = call.at + REMEMBERED


__all__ = ["AnotherProcess", "Repeats"]
