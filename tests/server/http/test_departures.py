"""Clients that disconnect, at every stage of a request and in both eras: no traceback is logged, and the server
continues.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
from pathlib import Path

import httpx2
import pytest
from support.gateway_process import (
    JSON,
    Running,
    Way,
    count,
    opened_session,
    service,
    serving,
    toml,
)

WAYS: list[tuple[str, str]] = []
ACCEPT = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
META: JSON = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Vanishing:
    """Sends the beginning of a request and vanishes, by a reset or by closing."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._address = host, int(port)
        self._resets = itertools.cycle([True, False])

    def send(self, data: bytes, *, wait: bool = False) -> None:
        with socket.create_connection(self._address, timeout=20) as sock:
            if next(self._resets):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(data)
            if wait:
                sock.recv(1)

    def vanish(self, data: bytes) -> None:
        """Vanish at each stage: with nothing, in the head, after it, in the body, after it, in the answer."""
        head = data.index(b"\r\n\r\n") + 4
        for length in (0, head // 2, head, (head + len(data)) // 2, len(data)):
            for _ in range(2):
                self.send(data[:length])
        for _ in range(2):
            self.send(data, wait=True)


def request(method: str, headers: dict[str, str], body: JSON | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = {"host": "localhost", "content-length": str(len(content)), **ACCEPT, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + content


def message(method: str, params: JSON, number: int | None = 1) -> JSON:
    body: JSON = {"jsonrpc": "2.0", "method": method, "params": params}
    return body if number is None else {**body, "id": number}


@pytest.mark.thorough
@pytest.mark.timeout(90)
async def test_clients_that_go_away_leave_no_traceback(tmp_path: Path) -> None:
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {"asking": service("asking")}}))
    with serving(config, tmp_path / "data") as running:
        way = Way("http", "modern", config, tmp_path, url=running.url)
        async with way.connect() as client:
            session = await opened_session(client)
            modern(running, session)
            await legacy(running, session)
            assert await count(client, session) > 0
        assert running.stop() == 0
    for sign in ("Traceback", "Exception", "ERROR", "Unexpected ASGI"):
        assert sign not in running.log, running.log


def modern(running: Running, session: str) -> None:
    gone = Vanishing(running.url)
    for method, params in calls(session):
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        if "name" in params:
            headers["mcp-name"] = params["name"]
        gone.vanish(request("POST", headers, message(method, {**params, "_meta": META})))


def calls(session: str) -> list[tuple[str, JSON]]:
    return [
        ("tools/list", {}),
        ("tools/call", {"name": "inc", "arguments": {"session_id": session}}),
        ("tools/call", {"name": "slow", "arguments": {"session_id": session, "seconds": 0.3}}),
    ]


async def legacy(running: Running, session: str) -> None:
    gone = Vanishing(running.url)
    hello: JSON = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    gone.vanish(request("POST", {}, message("initialize", hello)))
    for _ in range(2):
        async with httpx2.AsyncClient(base_url=running.url, headers=ACCEPT, timeout=60) as raw:
            opened = await raw.post("/mcp", json=message("initialize", hello))
            headers = {
                "mcp-session-id": opened.headers["mcp-session-id"],
                "mcp-protocol-version": "2025-11-25",
            }
            initialized = message("notifications/initialized", {}, None)
            await raw.post("/mcp", json=initialized, headers=headers)
            gone.vanish(request("GET", headers))
            for method, params in [*calls(session), ("ping", {})]:
                gone.vanish(request("POST", headers, message(method, params)))
            gone.vanish(request("POST", headers, message("notifications/cancelled", {}, None)))
            for _ in range(3):
                # Requests arrive while the session ends.
                for method, params in calls(session):
                    gone.send(request("POST", headers, message(method, params)))
                gone.send(request("POST", headers, message("notifications/x", {}, None)))
                gone.send(request("DELETE", headers))
