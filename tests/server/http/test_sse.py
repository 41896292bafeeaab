"""Bounds of connections over HTTP+SSE."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from support.gateway_process import JSON, Running, opened_session, serving, toml

ANSWERS = 24
BEGIN: JSON = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}


def open_stream(port: int) -> tuple[socket.socket, str]:
    """Return a connection that gets answers and reads none, and the path that takes its requests."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    stream.settimeout(20)
    stream.connect(("127.0.0.1", port))
    stream.sendall(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    head = b""
    while b"session_id=" not in head or not head.endswith(b"\r\n\r\n"):
        head += stream.recv(1000)
    return stream, head.decode().split("data: ")[1].split()[0]


def post(port: int, path: str, message: JSON) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        connection.recv(1000)


def read(stream: socket.socket) -> int:
    """Return the number of answers that arrive until the server closes the connection, or all have arrived."""
    data = bytearray()
    try:
        while data.count(b"event: message") <= ANSWERS and (part := stream.recv(1 << 20)):
            data += part
    except ConnectionResetError:
        pass
    return data.count(b"event: message")


def test_answers_that_wait_for_a_client_that_does_not_read_have_a_bound(tmp_path: Path) -> None:
    """Seen without: 1,200 answers to one client took 1.2 GB."""
    config = tmp_path / "statehold.toml"
    settings: Any = {"http": {"unsent_bytes": 2 << 20}, "services": {}}
    config.write_text(toml(settings))
    sessions: list[str] = []

    async def create(running: Running) -> None:
        async with Client(running.url + "/mcp", cache=None) as client:
            sessions.append(await opened_session(client))
            values = {"session_id": sessions[0], "values": {"text": "x" * 300_000}}
            await client.call_tool("state_update", values)

    with serving(config, tmp_path / "data") as running:
        anyio.run(create, running)
        port = int(running.url.rsplit(":", 1)[1])
        stream, path = open_stream(port)
        with stream:
            post(port, path, {"id": 0, "method": "initialize", "params": BEGIN})
            post(port, path, {"method": "notifications/initialized"})
            call: JSON = {"name": "state_get", "arguments": {"session_id": sessions[0]}}
            for number in range(ANSWERS):
                post(port, path, {"id": 1 + number, "method": "tools/call", "params": call})
            assert read(stream) < ANSWERS
        assert running.stop() == 0
