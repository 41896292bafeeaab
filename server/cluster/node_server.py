"""The HTTP server of a node for the other nodes. It does not listen: others accept the connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.types import ASGIApp

from ...sessions.json_codec import JSON
from ..sockets.local_socket import LocalSocket
from .assertion import Assertions
from .node_messages import HTTP_VERB
from .owner import KEEP_SECONDS, OtherEnd, Owner

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

ANSWER_SECONDS: Final = 2.0
"""Seconds that the last results may take when the process ends."""


class NodeServer:
    """Serves an application on accepted connections, one HTTP protocol each. close() ends them and may be called twice."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._config: Config | None = None
        self._state: ServerState | None = None

    async def serve(
        self,
        connection: socket.socket,
        other_end: OtherEnd,
        *,
        tls: ssl.SSLContext | None = None,
        tls_seconds: float | None = None,
    ) -> None:
        """Return when the connection is served in the background; it is closed if that fails.

        Raises:
            OSError: the TLS handshake failed.
        """
        if self._config is None:
            # Most processes that serve one client over stdio are never asked by another one.
            await anyio.to_thread.run_sync(_import_protocol)
            self._load()
        protocol = partial(_protocol_class(), self._config, self._state, other_end)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=tls, ssl_handshake_timeout=tls_seconds
            )
        except BaseException:
            connection.close()
            raise

    def _load(self) -> None:
        from uvicorn import Config
        from uvicorn.server import ServerState

        if self._config is None:
            self._config = Config(
                self._app,
                lifespan="off",
                ws="none",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_SECONDS,
            )
            self._config.load()
            self._state = ServerState()

    def close(self) -> None:
        if self._state is not None:
            for task in list(self._state.tasks):
                task.cancel()
            for protocol in list(self._state.connections):
                protocol.transport.close()


def _import_protocol() -> None:
    from . import http_protocol  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _protocol_class() -> Any:
    from .http_protocol import NodeProtocol

    return NodeProtocol


@asynccontextmanager
async def answer_nodes(owner: Owner, local: LocalSocket) -> AsyncGenerator[None]:
    """Answer the other nodes of the data folder at the local socket of this process while the block runs.

    The last results are sent before it ends.
    """
    server = NodeServer(owner.application(Assertions()))
    verbs = {HTTP_VERB: partial(_serve_node, server)}
    async with local.serve(verbs, is_starting=True):
        try:
            yield
        finally:
            await owner.wait_idle(ANSWER_SECONDS)
            server.close()


async def _serve_node(server: NodeServer, members: JSON, connection: socket.socket) -> None:
    await server.serve(connection, OtherEnd())
