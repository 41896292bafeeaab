"""The loop of the keeper: it spawns children for nodes, holds them while no node runs, and hands them to the next one.

One thread, which waits for nothing but events. It never reads a stdout, and a stderr only while no node holds the child.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from child import Child, require_spawn
from protocol import (
    FAILED,
    IN_USE,
    INVALID,
    STALE,
    UNKNOWN,
    VERSION,
    Packet,
    close_all,
    peer_of,
    receive,
    send,
)

MAX_CLIENTS: Final = 256
"""Most connections at once."""
MAX_HELD: Final = 512
"""Most descriptors that the keeper holds for one child."""
LONGEST_LINGER: Final = 400 * 86_400.0
FIRST_SECONDS: Final = 30.0
"""Seconds that a new keeper waits for its first node."""

Answer: TypeAlias = "tuple[Packet, list[int]]"


class Refusal(Exception):
    """Raised when a request is refused; `fields` are those of the answer."""

    def __init__(self, code: str, **fields: Any) -> None:
        super().__init__(code)
        self.fields = {"error": code, **fields}


class ConnectedClient:
    """The connection of a node, or of a command that holds no child. It lives until its other end closes it or dies."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.has_greeted = False
        self.is_node = False


class Keeper:
    """The children of one data folder. run() returns when no node has been there for `linger` seconds, or as long as a
    child is kept.

    Without children it returns as soon as the last node is gone.
    """

    def __init__(
        self, listener: socket.socket, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._clients: set[ConnectedClient] = set()
        self._children: dict[int, Child] = {}
        self._last_key = 0
        self._linger = FIRST_SECONDS
        """Seconds that a child lives without a node, and the keeper without any node."""
        self._had_node = False
        self._alone_since: float | None = clock()
        self._verbs: dict[str, Callable[[ConnectedClient, Packet], Answer]] = {
            "spawn": self._spawn,
            "confine": self._confine,
            "adopt": self._adopt,
            "leave": self._leave,
            "keep": self._keep,
            "release": self._release,
            "end": self._end,
            "list": self._list,
            "hold": self._hold,
            "fetch": self._fetch,
            "drop": self._drop_descriptor,
        }

    def run(self) -> None:
        self._watch(self._listener, self._accept)
        try:
            while not self._is_over():
                for key, _ in self._selector.select(self._seconds_to_wait()):
                    # An event before it may have ended the watch and closed the file.
                    if self._selector.get_map().get(key.fd) is key:
                        key.data()
                self._end_expired()
        finally:
            for child in self._children.values():
                child.kill()

    def _is_over(self) -> bool:
        since = self._alone_since
        if since is None:
            return False
        return self._clock() >= since + self._longest() or (self._had_node and not self._children)

    def _longest(self) -> float:
        """Return the seconds that the keeper lives without any node."""
        return max(map(self._seconds_of, self._children.values()), default=self._linger)

    def _seconds_of(self, child: Child) -> float:
        """Return the seconds that a child lives without a node."""
        return max(self._linger, child.kept_seconds)

    def _seconds_to_wait(self) -> float | None:
        ends = [
            child.alone_since + self._seconds_of(child)
            for child in self._children.values()
            if child.alone_since is not None
        ]
        if self._alone_since is not None:
            ends.append(self._alone_since + self._longest())
        return max(0.0, min(ends) - self._clock()) if ends else None

    def _end_expired(self) -> None:
        now = self._clock()
        for child in list(self._children.values()):
            if child.alone_since is not None and now >= child.alone_since + self._seconds_of(child):
                self._kill(child)

    def _watch(self, file: int | socket.socket, handle: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, handle)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._clients) >= MAX_CLIENTS or peer_of(connection)[1] != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        client = ConnectedClient(connection)
        self._clients.add(client)
        self._watch(connection, partial(self._read, client))

    def _read(self, client: ConnectedClient) -> None:
        try:
            received = receive(client.connection)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            received = None
        if received is None:
            self._drop(client)
            return
        packet, passed = received
        packet["passed"] = passed
        try:
            answer, descriptors = self._handle(client, packet)
        except Refusal as refusal:
            answer, descriptors = refusal.fields, []
        except (LookupError, TypeError, ValueError, ArithmeticError):
            answer, descriptors = {"error": INVALID}, []
        finally:
            close_all(passed)
        number = packet.get("number")
        self._send(
            client, {"number": number if isinstance(number, int) else None, **answer}, descriptors
        )

    def _handle(self, client: ConnectedClient, packet: Packet) -> Answer:
        if packet["verb"] == "hello":
            return self._greet(client, packet)
        if not client.has_greeted:
            raise Refusal(INVALID)
        return self._verbs[packet["verb"]](client, packet)

    def _send(self, client: ConnectedClient, packet: Packet, descriptors: list[int]) -> None:
        try:
            send(client.connection, packet, descriptors)
        except OSError:
            # Its buffer is full, or it is gone; a node that reads no answers has failed.
            self._drop(client)

    def _drop(self, client: ConnectedClient) -> None:
        """Forget a connection that ended. The children of its node wait for the next node, those that it released end."""
        if client not in self._clients:
            return
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        client.connection.close()
        for child in [child for child in self._children.values() if child.holder is client]:
            self._take_back(child)
        if client.is_node and not any(other.is_node for other in self._clients):
            self._alone_since = self._clock()

    def _take_back(self, child: Child) -> None:
        child.holder, child.alone_since = None, self._clock()
        if child.is_released:
            self._kill(child)
        else:
            self._watch(child.stderr, partial(self._read_stderr, child))

    def _is_in_use(self, child: Child) -> bool:
        """Whether a connected node has a child. The end of its node may be known to the kernel before its event arrives."""
        holder = child.holder
        while holder in self._clients and _has_hung_up(holder.connection):
            self._read(holder)
        return child.holder is not None

    def _read_stderr(self, child: Child) -> None:
        if not child.read_stderr():
            self._selector.unregister(child.stderr)

    def _record_exit(self, child: Child) -> None:
        self._selector.unregister(child.pidfd)
        child.reap()
        if child.holder is not None:
            self._send(child.holder, {"exited": child.key, "code": child.code}, [])
        if child.is_released or child.is_ending:
            self._forget(child)

    def _kill(self, child: Child) -> None:
        child.alone_since, child.is_ending = None, True
        child.kill()
        if child.code is not None:
            self._forget(child)

    def _stop_reading(self, child: Child) -> None:
        if not child.is_released and child.stderr in self._selector.get_map():
            self._selector.unregister(child.stderr)

    def _forget(self, child: Child) -> None:
        if self._children.pop(child.key, None) is not None:
            self._stop_reading(child)
            child.close()

    def _greet(self, client: ConnectedClient, packet: Packet) -> Answer:
        if packet["version"] != VERSION:
            raise Refusal(INVALID, version=VERSION)
        if packet["linger"] is not None:
            linger = float(packet["linger"])
            if not 0 <= linger <= LONGEST_LINGER:
                raise Refusal(INVALID)
            client.is_node = self._had_node = True
            self._linger = linger
            self._alone_since = None
        client.has_greeted = True
        return {}, []

    def _confine(self, client: ConnectedClient, packet: Packet) -> Answer:
        (ruleset,) = packet["passed"]
        return self._spawn(client, packet, ruleset)

    def _spawn(self, client: ConnectedClient, packet: Packet, ruleset: int | None = None) -> Answer:
        require_spawn(packet)
        session, epoch = packet["session"], packet["epoch"]
        if any(c.session == session and c.epoch > epoch for c in self._children.values()):
            raise Refusal(STALE)
        for other in list(self._children.values()):
            # Its node died before it could record it.
            is_same = other.session == session and other.service == packet["service"]
            if is_same and not self._is_in_use(other):
                self._kill(other)
        self._last_key += 1
        try:
            child = Child(self._last_key, packet, ruleset)
        except OSError as error:
            raise Refusal(FAILED, errno=error.errno, file=error.filename) from None
        child.holder = client
        self._children[child.key] = child
        self._watch(child.pidfd, partial(self._record_exit, child))
        return {"key": child.key, "pid": child.pid, "mark": child.mark}, child.descriptors

    def _adopt(self, client: ConnectedClient, packet: Packet) -> Answer:
        identity = packet["session"], packet["service"], packet["generation"]
        child = next(
            (
                child
                for child in self._children.values()
                if child.identity == identity and not child.is_released and not child.is_ending
            ),
            None,
        )
        if child is None:
            raise Refusal(UNKNOWN)
        if child.epoch > int(packet["epoch"]):
            raise Refusal(STALE)
        if self._is_in_use(child):
            # It may still read the answers of the child, even if its session is another node's by now.
            raise Refusal(IN_USE)
        if child.is_ending:
            raise Refusal(UNKNOWN)
        self._stop_reading(child)
        child.epoch, child.holder, child.alone_since = int(packet["epoch"]), client, None
        child.kept_seconds = 0.0
        answer = {**child.describe(self._clock()), "mark": child.mark, "stderr": child.stderr_tail}
        return answer, child.descriptors

    def _leave(self, client: ConnectedClient, packet: Packet) -> Answer:
        self._take_back(self._child_of(client, packet))
        return {}, []

    def _keep(self, client: ConnectedClient, packet: Packet) -> Answer:
        seconds = float(packet["seconds"])
        if not 0 <= seconds <= LONGEST_LINGER:
            raise Refusal(INVALID)
        self._child_of(client, packet).kept_seconds = seconds
        return {}, []

    def _child_of(self, client: ConnectedClient, packet: Packet) -> Child:
        child = self._children[packet["key"]]
        if child.holder is not client:
            raise Refusal(STALE)
        return child

    def _release(self, client: ConnectedClient, packet: Packet) -> Answer:
        child = self._child_of(client, packet)
        self._stop_reading(child)
        child.release()
        if child.code is not None:
            self._forget(child)
        return {}, []

    def _end(self, client: ConnectedClient, packet: Packet) -> Answer:
        child = self._children[packet["key"]]
        if child.holder not in (None, client):
            raise Refusal(STALE)
        self._kill(child)
        return {}, []

    def _hold(self, client: ConnectedClient, packet: Packet) -> Answer:
        held, name = self._child_of(client, packet).held, packet["name"]
        (descriptor,) = packet["passed"]
        if not isinstance(name, str) or name in held or len(held) >= MAX_HELD:
            raise Refusal(INVALID)
        held[name] = os.dup(descriptor)
        return {}, []

    def _fetch(self, client: ConnectedClient, packet: Packet) -> Answer:
        return {}, [self._child_of(client, packet).held[packet["name"]]]

    def _drop_descriptor(self, client: ConnectedClient, packet: Packet) -> Answer:
        os.close(self._child_of(client, packet).held.pop(packet["name"]))
        return {}, []

    def _list(self, client: ConnectedClient, packet: Packet) -> Answer:
        now = self._clock()
        nodes = sum(other.is_node for other in self._clients)
        children = [child.describe(now) for child in self._children.values()]
        return {"children": children, "linger": self._linger, "nodes": nodes}, []


def _has_hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def ignore_signals() -> None:
    """Ignore the signals of a terminal and of a stop of the server: only its own loop ends the keeper.

    Its children do not inherit that, as they would with SIG_IGN.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: object) -> None:
    return
