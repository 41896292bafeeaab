"""The requests of the console to the node that owns a session: operator requests, and the pictures of a page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Literal, cast

import anyio

from ..server.cluster.assertion import Assertion, NodeRequest
from ..server.cluster.node_connection import ConnectionEnded, NodeConnection
from ..server.cluster.node_dialer import NodeUnreachable
from ..server.cluster.node_messages import FRAMES, NOT_OWNER, OPERATE, PICTURES, encode, parse
from ..server.cluster.node_pool import Peers
from ..server.cluster.picture_relay import NewestPictures
from ..server.gateway.gateway import Gateway
from ..server.operate.requests import OperatorRequest, ProcessUnavailable
from ..server.sockets.request import Refused
from ..sessions.errors import (
    OutcomeUnknown,
    OwnedByAnotherNode,
    ServiceUnavailable,
    SessionBusy,
    SessionNotFound,
)
from ..sessions.json_codec import JSON
from ..sessions.records import Principal, SessionRecord

MAX_ATTEMPTS: Final = 3
RETRY_SECONDS: Final = 0.1


class OwnerChanged(Exception):
    """Raised when the other node does not own the session any more; nothing ran."""


class OwnerCalls:
    """Runs operator requests in this process or another one. It keeps nothing between requests."""

    def __init__(self, gateway: Gateway, run: Callable[[OperatorRequest], Awaitable[JSON]]) -> None:
        self._gateway = gateway
        self._run = run

    async def call(
        self,
        record: SessionRecord,
        tool: str,
        *,
        cause: Literal["console", "operator"] = "console",
        **arguments: Any,
    ) -> JSON:
        """Run a tool on a session for its owner, and return the content of the result.

        Raises:
            SessionError, Refused: the tool refused, in this or in another process.
        """
        request = OperatorRequest(
            tool=tool,
            arguments={"session_id": record.id, **arguments},
            owner=record.owner,
            cause=cause,
        )
        for _ in range(MAX_ATTEMPTS):
            try:
                return await self._call(record, request)
            except OwnerChanged:
                self._gateway.registry.forget_owner(record.id)
            await anyio.sleep(RETRY_SECONDS)
            current = await self._gateway.store.get(record.id)
            if current is None:
                raise SessionNotFound
            record = current
        raise SessionBusy("The session keeps changing.", session_id=record.id)

    async def _call(self, record: SessionRecord, request: OperatorRequest) -> JSON:
        if record.node not in (None, self._gateway.node.id):
            # First there: here, a session that a person drives would be refused instead of passed on.
            try:
                assertion = Assertion(epoch=record.epoch)
                return await self._ask(record.node, request, assertion, record.id)
            except NodeUnreachable as error:
                if error.is_silent or self._gateway.node.lives(record.node):
                    raise _unreachable(record.id) from None
        try:
            return await self._run(request)
        except OwnedByAnotherNode as owner:
            assertion = Assertion(epoch=owner.epoch, adopt=owner.adopt)
            try:
                return await self._ask(owner.node, request, assertion, record.id)
            except NodeUnreachable:
                raise _unreachable(record.id) from None

    async def ask_node(self, node: str, request: OperatorRequest, *, seconds: float) -> JSON:
        """Run a request in a process, whatever sessions it owns.

        Raises:
            Refused: the process answered with an error.
            ProcessUnavailable: it cannot be reached, or does not answer in time.
        """
        if node == self._gateway.node.id:
            return await self._run(request)
        try:
            with anyio.fail_after(seconds):
                return await self._ask(node, request, Assertion(), "")
        except (NodeUnreachable, OutcomeUnknown, TimeoutError, OwnerChanged) as error:
            raise ProcessUnavailable(str(error) or "the process does not answer") from None

    @asynccontextmanager
    async def watch(
        self, record: SessionRecord, query: JSON
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Yield the pictures of the page of a session that another process holds; see NewestPictures.

        Raises:
            OwnerChanged: the process does not own the session any more, or has ended.
            Refused: the session has no page that can be shown.
            ServiceUnavailable: the process does not answer.
        """
        node = str(record.node)
        request = NodeRequest("POST", FRAMES, (), encode(query))
        signed = self._sign(record.owner, record.id, Assertion(epoch=record.epoch))
        try:
            async with self._peers().exchange(
                node, request, signed, takes_place=False
            ) as connection:
                status, headers = await connection.head()
                if status == NOT_OWNER:
                    raise OwnerChanged
                if PICTURES not in headers:
                    _content(parse(await _read_all(connection)))
                pictures = NewestPictures()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(pictures.read_all, connection)
                    yield pictures
                    tasks.cancel_scope.cancel()
        except NodeUnreachable as error:
            if error.is_silent or self._gateway.node.lives(node):
                raise _unreachable(record.id) from None
            await self._gateway.node.recover()
            if await self._gateway.node.find(node) is not None:
                raise _unreachable(record.id) from None
            raise OwnerChanged from None
        except ConnectionEnded:
            raise OwnerChanged from None

    async def _ask(
        self, node: str, request: OperatorRequest, assertion: Assertion, session_id: str
    ) -> JSON:
        peers = self._peers()
        body = encode(request.model_dump(exclude={"owner"}))
        signed = self._sign(request.owner, session_id, assertion)
        target = NodeRequest("POST", OPERATE, (), body)
        try:
            with peers.count_request():
                async with peers.exchange(node, target, signed) as connection:
                    status, _ = await connection.head()
                    answer = await _read_all(connection)
        except ConnectionEnded:
            raise OutcomeUnknown(
                "The process that holds the session ended meanwhile.", session_id=session_id
            ) from None
        if status == NOT_OWNER:
            raise OwnerChanged
        return _content(parse(answer))

    def _peers(self) -> Peers:
        peers = self._gateway.peers
        if peers is None:
            raise NodeUnreachable
        return peers

    def _sign(self, owner: str, session_id: str, assertion: Assertion) -> Assertion:
        return replace(
            assertion,
            principal=Principal.of_key(owner),
            namespace=self._gateway.config.namespace,
            session_id=session_id,
        )


def _unreachable(session_id: str) -> ServiceUnavailable:
    return ServiceUnavailable(
        "The process that holds the session does not answer.",
        session_id=session_id,
        recovery="If it is a command, such as `statehold sessions fork`, wait for its end: it never answers others.",
    )


async def _read_all(connection: NodeConnection) -> bytes:
    parts: list[bytes] = []
    while part := await connection.read():
        parts.append(part)
    return b"".join(parts)


def _content(answer: JSON) -> JSON:
    """Return the content of an answer.

    Raises:
        Refused: it is an error.
    """
    error: object = answer.get("error")
    if isinstance(error, dict):
        texts = cast("JSON", error)
        raise Refused(*(str(texts.get(key, "")) for key in ("code", "message", "recovery")))
    return cast("JSON", answer["content"])
