"""A node of a run: `python -P node.py [--clock SECONDS] [--without GUARD] -- ARGUMENTS` is `statehold ARGUMENTS`.

`--clock` sets its wall clock ahead or back. `--without` takes a safeguard away, so that the run has to find faults.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Final

from statehold.shell.main import main


def set_clock(ahead: float) -> None:
    true_time = time.time
    time.time = lambda: true_time() + ahead


def remove_guard() -> None:
    """Let a node act although its lease is over."""
    from statehold.sessions.node import Node

    Node.may_act = lambda self: True


def remove_fence() -> None:
    """Let a node write to the sessions of other nodes."""
    from statehold.sessions.store import batch

    class Anything:
        """Equal to every node and to every epoch."""

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    def fences(connection: object, ids: set[str]) -> list[tuple[str, Anything, Anything]]:
        return [(session_id, Anything(), Anything()) for session_id in ids]

    setattr(batch, "_fences", fences)  # noqa: B010 - a name of that module alone


def remove_second_clock() -> None:
    """Let a node declare others dead when the clock of the database alone says so."""
    from statehold.sessions.cluster.lease import Observer

    Observer.is_silent = lambda self, node, lease_seconds, now: True


CONTROLS: Final[dict[str, Callable[[], None]]] = {
    "guard": remove_guard,
    "fence": remove_fence,
    "two-clocks": remove_second_clock,
}


def run() -> int:
    split = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--clock", type=float, default=0.0)
    parser.add_argument("--without", choices=CONTROLS)
    options = parser.parse_args(sys.argv[1:split])
    if options.clock:
        set_clock(options.clock)
    if options.without:
        CONTROLS[options.without]()
    return main(sys.argv[split + 1 :])


if __name__ == "__main__":
    sys.exit(run())
