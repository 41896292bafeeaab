"""The parts of the benchmarks by name, in the order in which they run."""

from __future__ import annotations

import importlib
from types import ModuleType

PARTS = {
    "hop": "benchmarks.hop",
    "peers": "benchmarks.peers.comparison",
    "forward": "benchmarks.forwarding",
    "workers": "benchmarks.workers",
    "open": "benchmarks.opening",
    "density": "benchmarks.density",
    "restart": "benchmarks.restart",
    "store": "benchmarks.store",
    "scale": "benchmarks.scale",
    "nodes": "benchmarks.scale.nodes",
    "journal": "benchmarks.journal",
    "state": "benchmarks.carrying",
    "browser": "benchmarks.browser.latency",
    "crowd": "benchmarks.browser.crowd",
    "keep": "benchmarks.browser.keep",
    "storage": "benchmarks.browser.storage",
    "logins": "benchmarks.browser.logins",
    "settle": "benchmarks.browser.settle",
    "tokens": "benchmarks.browser.tokens",
    "start": "benchmarks.browser.start",
    "large": "benchmarks.browser.large",
    "agent": "benchmarks.agent",
    "call": "benchmarks.shell",
    "client": "benchmarks.clients",
    "writers": "benchmarks.writers",
    "layer": "benchmarks.layer",
    "failover": "benchmarks.chaos.failover",
    "keeper": "benchmarks.keeper",
    "soak": "benchmarks.soak",
    "chaos": "benchmarks.chaos",
    "console": "benchmarks.console",
    "console-soak": "benchmarks.console.left_open",
    "access": "benchmarks.access.cost",
    "timing": "benchmarks.access.timing",
}
ONLY_BY_NAME = {"keeper", "soak", "chaos", "console-soak"}
"""Parts that are tests instead of measurements: the command fails when they do."""
ON_UVLOOP = {"store", "scale", "nodes", "state", "layer"}
"""Parts that run Statehold's own code in this process, on the loop that Statehold uses."""


def module_of(part: str) -> ModuleType:
    """Return the module of a part, which has its `measure`."""
    return importlib.import_module(PARTS[part])
