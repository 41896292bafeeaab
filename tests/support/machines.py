"""Settings of the nodes of a cluster. Each data folder is a machine of its own: its nodes do not see the others' locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway_process import JSON

KEY = "k" * 32


def cluster(url: str, *, keys: Sequence[str] = (KEY,), **settings: Any) -> JSON:
    """Return the settings of a node that shares a PostgreSQL database with others."""
    return {
        "store": {"url": url},
        "cluster": {"enabled": True, "keys": list(keys), **settings},
    }


__all__ = ["KEY", "cluster"]
