"""Connections between nodes of two machines. Every message to the owner of a session follows its assertion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ...sessions.json_codec import JSON
from .assertion import AssertionRefused, Assertions
from .messages import ConnectionEnded, MessageConnection, encode, parse

logger = logging.getLogger("statehold.server")


class SignedConnection(MessageConnection):
    """The end of the node that has connected: it signs what it sends to `node`.

    What it receives has no assertions: the other node has proved itself in the handshake.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        assertions: Assertions,
        node: str,
    ) -> None:
        super().__init__(reader, writer)
        self.clock = assertions.clock
        self._assertions = assertions
        self._node = node

    def _lines(self, message: Mapping[str, Any]) -> bytes:
        line = encode(message)
        return encode(self._assertions.sign(self._node, line)) + line


class VerifiedConnection(MessageConnection):
    """The end of the node that was connected to: a message without a valid assertion ends the connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, assertions: Assertions
    ) -> None:
        super().__init__(reader, writer)
        self.clock = assertions.clock
        self._assertions = assertions

    async def receive(self) -> JSON:
        assertion = parse(await self._receive_line())
        line = await self._receive_line()
        try:
            self._assertions.verify(assertion, line)
        except AssertionRefused as error:
            logger.warning("the assertion of a forwarded message %s; the message is refused", error)
            raise ConnectionEnded from None
        return parse(line)


__all__ = ["SignedConnection", "VerifiedConnection"]
