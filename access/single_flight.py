"""One run of the same work for all who ask for it at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


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
