"""The requests that a test site has seen."""

from __future__ import annotations

import threading


class Hits(list[str]):
    """The requests that a site has seen, in the order of arrival. Its threads append them, and a test can wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self._arrival = threading.Condition()

    def append(self, hit: str, /) -> None:
        with self._arrival:
            super().append(hit)
            self._arrival.notify_all()

    async def wait_for(self, text: str, *, count: int = 1, seconds: float = 15.0) -> None:
        """Wait until so many requests with this text have arrived.

        Raises:
            TimeoutError: fewer came within so many seconds.
        """
        from anyio.to_thread import run_sync

        def wait() -> bool:
            with self._arrival:
                return self._arrival.wait_for(
                    lambda: sum(text in hit for hit in self) >= count, seconds
                )

        if not await run_sync(wait):
            raise TimeoutError(f"{count} requests with {text!r} did not come: {self}")


__all__ = ["Hits"]
