"""The parts that tests of nodes on several machines share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from .gateway_process import Running

KEY = "a-key-of-the-tests-with-32-characters"
LEASE_SECONDS = 4.0

Start: TypeAlias = Callable[..., AbstractContextManager[Running]]
"""`with start("a") as running` runs a node with the data folder `a`; further arguments are settings of `[cluster]`,
and `more` has other sections."""

__all__ = ["KEY", "LEASE_SECONDS", "Start"]
