"""Assertions: a node vouches for a request that it passes on to the owner of a session.

An assertion is one header of the request: JSON with the principal of the caller, the session that the owner is expected to
own, and the time before which it has to begin. Between two machines it also names the sender, the receiver, a number and
the SHA-256 of the body, and a MAC follows it, made with a key of the cluster over the method, the target and the headers of
the request and over the JSON. Such an assertion is accepted once. Times are seconds of a clock that both nodes can read:
that of the machine, or between machines that of the database.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from starlette.types import Scope

from ...sessions.json_codec import JSON, dumps
from ...sessions.records import LOCAL, Principal

HEADER: Final = b"statehold-assertion"
BEGIN_SECONDS: Final = 3.0
"""Seconds in which the owner has to begin a request."""
CLOCK_ERROR_SECONDS: Final = 30.0
"""How far ahead of this node's clock the clock of a sender may be."""
REQUEST, PROOF = "statehold request 1", "statehold proof 1"
"""The purposes of a MAC, which it covers, so that none passes for another."""
_ADDED_HEADERS: Final = frozenset((HEADER, b"host", b"content-length", b"expect"))
"""The headers that belong to the connection: a MAC does not cover them."""

Headers = Sequence[tuple[bytes, bytes]]


def _new_id() -> str:
    return secrets.token_urlsafe(16)


class AssertionRefused(Exception):
    """Raised when an assertion is forged, expired, used before, or for another node. Its text names the reason only."""


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """An HTTP request to another node. `target` is its path and query; `headers` are without those of the connection."""

    method: str
    target: str
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Assertion:
    """The statement of a node about a request.

    `principal` travels as the node that authenticated the caller knows it; the caller's token stays behind.
    """

    principal: Principal = LOCAL
    namespace: str = ""
    """The namespace of names of sessions."""
    session_id: str = ""
    """The session that the owner is expected to own. Empty for one that is yet to be created, or for none."""
    epoch: int = 0
    """The epoch in which the owner is expected to own it. 0: any."""
    adopt: bool = False
    """Whether the other node is to claim or create the session, because the sender takes on no more."""


class Assertions:
    """Writes and reads the assertions of the nodes of one machine, where the socket admits only this user's processes."""

    clock: Callable[[], float] = time.monotonic

    def sign(self, receiver: str, request: NodeRequest, assertion: Assertion) -> bytes:
        """Return the header of a request to another node, which has to begin it within BEGIN_SECONDS."""
        fields = self._fields(assertion)
        return dumps(fields).encode()

    def _fields(self, assertion: Assertion) -> JSON:
        return {
            "principal": assertion.principal.model_dump(),
            "namespace": assertion.namespace,
            "session_id": assertion.session_id,
            "epoch": assertion.epoch,
            "adopt": assertion.adopt,
            "begin_before": self.clock() + BEGIN_SECONDS,
        }

    def verify(self, scope: Scope) -> tuple[Assertion, JSON]:
        """Accept the assertion of a request, and return it with its fields.

        Raises:
            AssertionRefused: it is not valid.
        """
        fields = _parse(_header_of(scope))
        return self._read(fields), fields

    def _read(self, fields: JSON) -> Assertion:
        try:
            begin_before = float(fields["begin_before"])
            assertion = Assertion(
                Principal.model_validate(fields["principal"]),
                str(fields["namespace"]),
                str(fields["session_id"]),
                int(fields["epoch"]),
                fields["adopt"] is True,
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise AssertionRefused("is malformed") from None
        now = self.clock()
        # A node that was stopped must not begin a request that its sender has given up.
        if not now < begin_before <= now + BEGIN_SECONDS + CLOCK_ERROR_SECONDS:
            raise AssertionRefused("is expired, or not valid yet")
        return assertion

    def check_body(self, fields: JSON, body: bytes) -> None:
        """Check the body of a request whose assertion was accepted.

        Raises:
            AssertionRefused: it is another body.
        """

    def prove(self, fields: JSON) -> str:
        """Return the proof for a sender that its assertion has reached this node."""
        return ""


class SignedAssertions(Assertions):
    """Writes and reads the assertions of one node of a cluster. It remembers the numbers of valid assertions.

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
        """The numbers of accepted assertions, with the times before which they were valid."""

    def sign(self, receiver: str, request: NodeRequest, assertion: Assertion) -> bytes:
        fields = self._fields(assertion) | {
            "from": self._node,
            "to": receiver,
            "id": self._new_id(),
            "body": hashlib.sha256(request.body).hexdigest(),
        }
        text = dumps(fields).encode()
        content = _content(request.method, request.target.encode(), request.headers, text)
        return text + b" " + _mac(self._keys[0], content)

    def verify(self, scope: Scope) -> tuple[Assertion, JSON]:
        text, _, mac = _header_of(scope).rpartition(b" ")
        query: bytes = scope["query_string"]
        target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
        self._check_mac(mac, _content(scope["method"], target, scope["headers"], text))
        fields = _parse(text)
        if fields.get("to") != self._node:
            raise AssertionRefused("is for another node")
        assertion = self._read(fields)
        self._use(str(fields.get("id")), float(fields["begin_before"]), self.clock())
        return assertion, fields

    def _use(self, number: str, begin_before: float, now: float) -> None:
        while self._used and next(iter(self._used.values())) <= now:
            self._used.popitem(last=False)
        if number in self._used:
            raise AssertionRefused("was used before")
        self._used[number] = begin_before

    def check_body(self, fields: JSON, body: bytes) -> None:
        if fields.get("body") != hashlib.sha256(body).hexdigest():
            raise AssertionRefused("is for another body")

    def prove(self, fields: JSON) -> str:
        return _mac(self._keys[0], _proof(self._node, str(fields["id"]))).decode()

    def check_proof(self, header: bytes, proof: bytes) -> None:
        """Check the proof of the receiver of an assertion, which begins with `header`.

        Raises:
            AssertionRefused: it is not from that receiver.
        """
        fields = _parse(header.rpartition(b" ")[0])
        self._check_mac(proof, _proof(fields["to"], fields["id"]))

    def _check_mac(self, mac: bytes, content: bytes) -> None:
        if not any(hmac.compare_digest(mac, _mac(key, content)) for key in self._keys):
            raise AssertionRefused("is not signed with a key of this cluster")


def _header_of(scope: Scope) -> bytes:
    values = [value for name, value in scope["headers"] if name == HEADER]
    if len(values) != 1:
        raise AssertionRefused("is missing")
    return values[0]


def _parse(text: bytes) -> JSON:
    try:
        fields: Any = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise AssertionRefused("is malformed")
    return cast("JSON", fields)


def _content(
    method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], text: bytes
) -> bytes:
    # No header contains a line end, so that two requests never have one content.
    lines = [REQUEST.encode(), method.encode(), target]
    lines += [name + b":" + value for name, value in headers if name not in _ADDED_HEADERS]
    return b"\n".join([*lines, b"", text])


def _proof(node: str, number: str) -> bytes:
    return json.dumps([PROOF, node, number]).encode()


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256").hex().encode()
