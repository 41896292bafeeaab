"""Assertions: a node of the cluster wrote a message, for one other node, a moment ago.

An assertion is a line of JSON before the line of its message: `{"from", "to", "id", "expires_at", "mac"}`. The MAC is made
with a key of the cluster, over these values and the SHA-256 of the message, which names the principal, the session and its
epoch. An assertion is accepted once. Times are seconds of a clock that all nodes can read, which is the database's.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from ...sessions.json_codec import JSON

LIFETIME_SECONDS: Final = 30.0
CLOCK_ERROR_SECONDS: Final = 30.0
"""How far ahead of this node's clock the clock of a sender may be."""
MESSAGE, PROOF = "statehold message 1", "statehold proof 1"
"""The purposes of a MAC, which it covers, so that none passes for another."""


def _new_id() -> str:
    return secrets.token_urlsafe(16)


class AssertionRefused(Exception):
    """Raised when an assertion is forged, expired, used before, or for another node. Its text names the reason only."""


class Assertions:
    """Signs the messages of one node to other nodes, and verifies those that it gets. Keeps the ids of valid assertions.

    The first of `keys` signs; all of them verify, so that a key can be replaced node by node.
    """

    def __init__(
        self,
        node: str,
        keys: Sequence[bytes],
        clock: Callable[[], float],
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self.clock = clock
        self._node = node
        self._keys = keys
        self._new_id = new_id
        self._used: OrderedDict[str, float] = OrderedDict()
        """The ids of accepted assertions, with the times at which they expire."""

    def sign(self, receiver: str, message: bytes) -> JSON:
        """Return the assertion of a message to another node."""
        number, expires_at = self._new_id(), self.clock() + LIFETIME_SECONDS
        content = _content(self._node, receiver, number, expires_at, message)
        return {
            "from": self._node,
            "to": receiver,
            "id": number,
            "expires_at": expires_at,
            "mac": _mac(self._keys[0], content),
        }

    def verify(self, assertion: JSON, message: bytes) -> str:
        """Accept an assertion of a message to this node, and return its sender.

        Raises:
            AssertionRefused: it is not valid.
        """
        try:
            sender, number, mac = (
                str(assertion["from"]),
                str(assertion["id"]),
                str(assertion["mac"]),
            )
            receiver, expires_at = str(assertion["to"]), float(assertion["expires_at"])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise AssertionRefused("is malformed") from None
        self._check_mac(mac, _content(sender, receiver, number, expires_at, message))
        if receiver != self._node:
            raise AssertionRefused("is for another node")
        now = self.clock()
        if not now < expires_at <= now + LIFETIME_SECONDS + CLOCK_ERROR_SECONDS:
            raise AssertionRefused("is expired, or not valid yet")
        self._use(number, expires_at, now)
        return sender

    def _use(self, number: str, expires_at: float, now: float) -> None:
        while self._used and next(iter(self._used.values())) <= now:
            self._used.popitem(last=False)
        if number in self._used:
            raise AssertionRefused("was used before")
        self._used[number] = expires_at

    def prove(self, assertion: JSON) -> str:
        """Return the proof for a sender that its assertion has reached this node, which has a key."""
        return _mac(self._keys[0], _proof(self._node, str(assertion["id"])))

    def check_proof(self, assertion: JSON, proof: str) -> None:
        """Check the proof of the receiver of an assertion.

        Raises:
            AssertionRefused: it is not from that receiver.
        """
        self._check_mac(proof, _proof(assertion["to"], assertion["id"]))

    def _check_mac(self, mac: str, content: bytes) -> None:
        given = mac.encode(errors="replace")
        if not any(hmac.compare_digest(given, _mac(key, content).encode()) for key in self._keys):
            raise AssertionRefused("is not signed with a key of this cluster")


def _content(sender: str, receiver: str, number: str, expires_at: float, message: bytes) -> bytes:
    digest = hashlib.sha256(message).hexdigest()
    return json.dumps([MESSAGE, sender, receiver, number, expires_at, digest]).encode()


def _proof(node: str, number: str) -> bytes:
    return json.dumps([PROOF, node, number]).encode()


def _mac(key: bytes, content: bytes) -> str:
    return hmac.digest(key, content, "sha256").hex()


__all__ = ["AssertionRefused", "Assertions"]
