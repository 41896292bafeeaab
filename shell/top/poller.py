"""The thread that looks at a server again and again, and the actions, which run beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from .sample import Rates, Sample, SessionRow, Source


@dataclass(slots=True)
class Look:
    """The newest sample, the calls per second, and the outcomes of actions that have ended since the look before."""

    sample: Sample
    rates: dict[str, float]
    outcomes: list[str] = field(default_factory=list[str])


class Poller:
    """Reads a source in a thread of its own. `on_news` is called from threads when take() has something new.

    The threads are daemons: close() does not wait for a server that does not answer.
    """

    def __init__(self, source: Source, first: Sample, on_news: Callable[[], None]) -> None:
        self._source = source
        self._on_news = on_news
        self._lock = threading.Lock()
        self._rates = Rates()
        self._sample = first
        self._calls_per_second = self._rates.update(first.at, first.rows)
        self._outcomes: list[str] = []
        self._due = threading.Event()
        self._is_closed = False
        self._selected: str | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def take(self, selected: str | None) -> Look:
        """Return the newest sample. `selected` is the session that the next one has to show with its services."""
        with self._lock:
            if self._selected != selected:
                self._selected = selected
                self._due.set()
            outcomes, self._outcomes = self._outcomes, []
            return Look(self._sample, self._calls_per_second, outcomes)

    def act(self, row: SessionRow, action: str) -> None:
        """Start an action; its outcome is in a later look."""
        threading.Thread(target=self._act, args=(row, action), daemon=True).start()

    def close(self) -> None:
        self._is_closed = True
        self._due.set()

    def _run(self) -> None:
        while not self._is_closed:
            self._due.wait(self._source.interval)
            self._due.clear()
            sample = self._source.read(self._selected)
            with self._lock:
                self._sample = sample
                self._calls_per_second = self._rates.update(sample.at, sample.rows)
            self._notify()

    def _act(self, row: SessionRow, action: str) -> None:
        outcome = self._source.act(row, action)
        with self._lock:
            self._outcomes.append(outcome)
        self._due.set()
        self._notify()

    def _notify(self) -> None:
        if not self._is_closed:
            self._on_news()
