"""A session with its owner, and the way to another process of the data folder."""

from __future__ import annotations

from dataclasses import dataclass

from mcp import Client

from .gateway_process import JSON, Running, Way


@dataclass
class Pair:
    """A session, a client of the process that owns it, and the way to another process of the data folder."""

    owner: Running
    client: Client
    edge: Way
    session: str

    @property
    def at(self) -> JSON:
        """The argument that names the session."""
        return {"session_id": self.session}


__all__ = ["Pair"]
