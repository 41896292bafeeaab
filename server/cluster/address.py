"""The address at which a node takes forwarded requests: on one machine, a Unix socket in the data folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ...sessions.node import NODES
from ..sockets.unix_sockets import (
    claim_socket_path,
    create_private_folder,
    remove_socket,
    socket_path,
)

FOLDER = "forwarding"


class NodeSockets:
    """The sockets of the nodes of one data folder. Each is named after its node, in a folder private to this user."""

    def __init__(self, data: Path) -> None:
        self._folder = data / FOLDER
        self._locks = data / NODES

    def path(self, node: str) -> Path:
        """Return the path at which to reach a node."""
        return socket_path(self._folder, node)

    def claim(self, node: str) -> Path:
        """Return the path at which this node binds its socket, and remove the sockets of nodes that have ended.

        Raises:
            OSError: the folder cannot be created, or another user may enter it.
        """
        create_private_folder(self._folder)
        for path in [*self._folder.glob("*.sock"), *self._folder.glob("*.addr")]:
            # A node holds its lock file before it binds its socket, and longer.
            if not (self._locks / f"{path.stem}.lock").exists():
                with suppress(OSError):
                    remove_socket(self._folder, path.stem)
        return claim_socket_path(self._folder, node)

    def remove(self, node: str) -> None:
        remove_socket(self._folder, node)


__all__ = ["NodeSockets"]
