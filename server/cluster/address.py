"""The address at which a node takes forwarded requests: on one machine, a Unix socket in the data folder."""

from __future__ import annotations

from pathlib import Path

from ...sessions.node import NODES
from ..sockets.address import (
    claim_socket,
    create_private_folder,
    find_socket,
    remove_socket,
    remove_stale_sockets,
)

FOLDER = "forwarding"


class NodeSockets:
    """The sockets of the nodes of one data folder. Each is named after its node, in a folder private to this user."""

    def __init__(self, data: Path) -> None:
        self._folder = data / FOLDER
        self._locks = data / NODES

    def path(self, node: str) -> Path:
        """Return the path at which to reach a node. Raises FileNotFoundError when there is none."""
        return find_socket(self._folder, node)

    def claim(self, node: str) -> Path:
        """Return the path at which this node binds its socket, and remove the sockets of nodes that have ended.

        Raises:
            OSError: the folder cannot be created, or another user may enter it.
        """
        create_private_folder(self._folder)
        remove_stale_sockets(self._folder, self._locks)
        return claim_socket(self._folder, node)

    def remove(self, node: str) -> None:
        remove_socket(self._folder, node)


__all__ = ["NodeSockets"]
