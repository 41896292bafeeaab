"""The listening socket of the HTTP server."""

from __future__ import annotations

import socket
from pathlib import Path

from statehold.server.config.model import Config
from statehold.server.http.listener import listen


def test_accepted_connections_send_small_answers_at_once(tmp_path: Path) -> None:
    """Without TCP_NODELAY the second write of an answer waits for the acknowledgement of the first one."""
    config = Config.model_validate({"server": {"port": 0}, "data": tmp_path})
    with listen(config) as (listener, _), socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
