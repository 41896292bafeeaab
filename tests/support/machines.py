"""Settings of the nodes of a cluster. Each data folder is a machine of its own: its nodes do not see the others' locks."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from .gateway_process import JSON

KEY = "a-key-of-the-machines-of-the-tests"


def cluster(url: str, *, keys: Sequence[str] = (KEY,), **settings: Any) -> JSON:
    """Return the settings of a node that shares a PostgreSQL database with others.

    Its short grace shortens the end of a test: a node passes requests on for that long before it ends.
    """
    return {
        "timeouts": {"close_grace": 0.5},
        "store": {"url": url},
        "cluster": {"enabled": True, "keys": list(keys), **settings},
    }


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return listener.getsockname()[1]


__all__ = ["KEY", "cluster", "free_port"]
