"""The keeper as a command asks it: it reads the list of the children, ends some, and holds none. Everything here blocks.

See keeper/protocol.py for the packets; keeper.py has the connection of a node.
"""

from __future__ import annotations

import itertools
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...keeper import protocol
from ...keeper.protocol import Packet
from . import procfs

ANSWER_SECONDS: Final = 3.0
"""Seconds that an answer of the keeper may take. A keeper that does not answer in time keeps nothing."""


class KeeperRefusal(Exception):
    """Raised when the keeper refuses a request; `answer` has its reason."""

    def __init__(self, answer: Packet) -> None:
        super().__init__(str(answer["error"]))
        self.answer = answer


class KeeperUnreachable(Exception):
    """Raised when no keeper runs and none can be started, or when it does not answer."""


class NoKeeper(KeeperUnreachable):
    """Raised when no keeper runs."""


@dataclass(frozen=True, slots=True)
class KeptChild:
    """One child of the keeper, as it was when the keeper was asked."""

    key: int
    pid: int
    session: str
    service: str
    has_node: bool
    alone_seconds: float | None
    """Seconds since its node ended; None while a node has it, and while it is being killed."""
    code: int | None
    """Its exit code, minus the number of the signal that killed it; None while it runs."""


@dataclass(frozen=True, slots=True)
class KeeperStatus:
    """The keeper of a data folder, as it was when it was asked."""

    pid: int
    nodes: int
    linger_seconds: float
    children: tuple[KeptChild, ...]

    @classmethod
    def of(cls, pid: int, answer: Packet) -> KeeperStatus:
        """Return the status that an answer to `list` has."""
        children = tuple(KeptChild(**child) for child in answer["children"])
        return cls(pid, answer["nodes"], answer["linger"], children)


def connect_to_keeper(folder: Path) -> socket.socket | None:
    """Return a connection to the keeper of a data folder, which does not block; None when none listens.

    Raises:
        KeeperUnreachable: it accepts no connection.
    """
    connection = protocol.new_socket()
    opened = -1
    try:
        opened = protocol.open_folder(folder)
        connection.setblocking(False)
        connection.connect(protocol.address_of(opened))
        if protocol.peer_of(connection)[1] == os.getuid():
            return connection
    except BlockingIOError as error:
        connection.close()
        raise KeeperUnreachable("it accepts no connection") from error
    except OSError:
        pass
    finally:
        if opened >= 0:
            os.close(opened)
    connection.close()
    return None


class KeeperCommand:
    """The connection of a command to the keeper, from its creation to close(). It starts no keeper.

    Raises:
        NoKeeper: none runs.
        KeeperUnreachable: it does not answer.
    """

    def __init__(self, folder: Path, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        connection = connect_to_keeper(folder) if procfs.LINUX else None
        if connection is None:
            raise NoKeeper("none runs" if procfs.LINUX else "only Linux has it")
        self._connection = connection
        self._connection.settimeout(answer_seconds)
        self._numbers = itertools.count(1)
        self._pid, _ = protocol.peer_of(connection)
        try:
            self._request({"verb": "hello", "version": protocol.VERSION, "linger": None})
        except KeeperRefusal as error:
            self.close()
            raise KeeperUnreachable(f"it refused this process ({error})") from error
        except BaseException:
            self.close()
            raise

    def status(self) -> KeeperStatus:
        """Return what the keeper holds.

        Raises:
            KeeperUnreachable: it does not answer.
        """
        return KeeperStatus.of(self._pid, self._request({"verb": "list"}))

    def end(self, child: KeptChild) -> bool:
        """Have the keeper kill a child that no node has. Return False if a node has it by now, or if it is gone.

        Raises:
            KeeperUnreachable: it does not answer.
        """
        try:
            self._request({"verb": "end", "key": child.key})
        except (KeeperRefusal, NoKeeper):
            return False
        return True

    def close(self) -> None:
        """End the connection. May be called twice."""
        self._connection.close()

    def _request(self, packet: Packet) -> Packet:
        number = next(self._numbers)
        try:
            protocol.send(self._connection, {**packet, "number": number})
            received = protocol.receive(self._connection)
        except ConnectionError as error:
            raise NoKeeper("it ended") from error
        except TimeoutError as error:
            raise KeeperUnreachable(f"it does not answer (pid {self._pid})") from error
        except (OSError, ValueError) as error:
            raise KeeperUnreachable(str(error)) from error
        if received is None:
            raise NoKeeper("it ended")
        answer, descriptors = received
        protocol.close_all(descriptors)
        if "error" in answer:
            raise KeeperRefusal(answer)
        return answer
