"""TLS at the main port: every route speaks it, a new certificate is used without a restart, and bad files are not."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from support.activation import ACTIVATE
from support.authority import Authority
from support.console_client import console_address
from support.gateway_process import (
    JSON,
    STATEHOLD,
    Running,
    count,
    opened_session,
    service,
    serving,
    statehold,
    toml,
)
from support.token_file import write_tokens
from support.waiting import until

WAYS: list[tuple[str, str]] = []
TOKEN = "alice-token-0123456789"
ALICE = {"authorization": f"Bearer {TOKEN}"}


class SecureServer:
    """The files of a server with TLS, and clients that trust its authority."""

    def __init__(self, folder: Path, **http: int) -> None:
        self.folder, self.config = folder, folder / "statehold.toml"
        self.authority = Authority(folder, "authority")
        self.certificate, self.key = folder / "server.crt", folder / "server.key"
        self.install("first")
        self.tokens = write_tokens(folder / "tokens", f"{TOKEN} alice\n")
        tls = {"certificate": "server.crt", "key": "server.key"}
        server: JSON = {"tokens": "tokens", "tls": tls, "allowed_hosts": ["mcp.example.org"]}
        services = {"quick": service("quick")}
        self.config.write_text(toml({"server": server, "http": http, "services": services}))

    def install(self, name: str, *, rsa: bool = False) -> None:
        """Replace the files by a new pair."""
        pair = self.authority.sign(name, "127.0.0.1", "localhost", rsa=rsa)
        shutil.move(pair[1], self.key)
        shutil.move(pair[0], self.certificate)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    @asynccontextmanager
    async def raw(self, url: str) -> AsyncGenerator[httpx2.AsyncClient]:
        async with httpx2.AsyncClient(
            base_url=url, headers=ALICE, timeout=60, verify=self.context()
        ) as client:
            yield client

    @contextmanager
    def socket(self, url: str, context: ssl.SSLContext | None = None) -> Generator[ssl.SSLSocket]:
        context = context or self.context()
        with (
            socket.create_connection(place(url), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            yield secure

    def name_at(self, url: str) -> str:
        """Return the name in the certificate that a new connection gets."""
        with self.socket(url) as secure:
            found = secure.getpeercert()
            assert found is not None
            subject: object = found["subject"]
            return str(subject).split("'")[3]


def place(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return host, int(port)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SecureServer:
    return SecureServer(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(files: SecureServer) -> Generator[Running]:
    with serving(files.config, files.folder / "data") as running:
        assert running.url.startswith("https://127.0.0.1:")
        yield running


async def test_clients_of_both_eras_call_tools(files: SecureServer, secure: Running) -> None:
    async with (
        files.raw(secure.url) as raw,
        Client(streamable_http_client(f"{secure.url}/mcp", http_client=raw), cache=None) as client,
    ):
        session = await opened_session(client)
        assert await count(client, session) == 1

    def factory(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers=ALICE, timeout=60, verify=files.context())

    transport = sse_client(f"{secure.url}/sse", httpx_client_factory=factory)
    async with Client(transport, mode="legacy", cache=None) as legacy:
        assert await count(legacy, session) == 2


async def test_probes_and_refusals_speak_tls(files: SecureServer, secure: Running) -> None:
    async with files.raw(secure.url) as raw:
        for path in ("/livez", "/readyz", "/health"):
            assert (await raw.get(path)).status_code == 200
        headers = {"authorization": "Bearer wrong-token-0123456789"}
        assert (await raw.post("/mcp", headers=headers)).status_code == 401
        # An early answer: the body is larger than any that is read.
        answer = await raw.post("/mcp", content=b"x" * (5 << 20))
        assert answer.status_code in (400, 413)
        assert (await raw.get("/health", headers={"origin": secure.url})).status_code == 200
        plain = secure.url.replace("https:", "http:")
        port = place(secure.url)[1]
        own = {"host": f"mcp.example.org:{port}", "origin": f"http://mcp.example.org:{port}"}
        assert (await raw.get("/health", headers=own)).status_code == 403
        assert (await raw.get("/health", headers={"origin": plain})).status_code == 200


def test_old_versions_and_plain_http_get_no_answer(files: SecureServer, secure: Running) -> None:
    context = files.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with files.socket(secure.url, context) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.version() == "TLSv1.3"
    older = files.context()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with files.socket(secure.url, older) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    oldest = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    oldest.load_verify_locations(files.authority.certificate)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        oldest.minimum_version = oldest.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError), files.socket(secure.url, oldest):
        pass
    with socket.create_connection(place(secure.url), timeout=20) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    assert "Traceback" not in secure.log


async def test_a_new_certificate_is_used_while_streams_go_on(tmp_path: Path) -> None:
    files = SecureServer(tmp_path)
    with serving(files.config, tmp_path / "data") as running, files.socket(running.url) as kept:
        assert files.name_at(running.url) == "first"
        async with files.raw(running.url) as raw, raw.stream("GET", "/sse") as stream:
            chunks = stream.aiter_bytes()
            assert await anext(chunks)
            # Of another kind, so that a context with both would offer the former one, too.
            files.install("second", rsa=True)
            await until(lambda: files.name_at(running.url) == "second")
            kept.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(100).startswith(b"HTTP/1.1 200")

            key = files.key.read_bytes()
            files.key.write_bytes(files.authority.sign("other", "localhost")[1].read_bytes())
            await until(lambda: "the former certificate stays in use" in running.log)
            assert files.name_at(running.url) == "second"
            files.key.write_bytes(key)
            files.key.chmod(0o644)
            await until(lambda: "other users may read the key" in running.log)
            assert files.name_at(running.url) == "second"
            with pytest.raises(TimeoutError), anyio.fail_after(0.1):
                await anext(chunks)
        assert running.stop() == 0
    assert "Traceback" not in running.log


async def test_unfinished_handshakes_make_room_for_others(tmp_path: Path) -> None:
    files = SecureServer(tmp_path, connections_per_address=8)
    with serving(files.config, tmp_path / "data") as running:
        silent = [socket.create_connection(place(running.url)) for _ in range(12)]
        try:
            async with files.raw(running.url) as raw:
                assert (await raw.get("/livez")).status_code == 200
        finally:
            for connection in silent:
                connection.close()
        with socket.create_connection(place(running.url)):
            # A handshake that never ends delays no stop.
            assert running.stop(within=10) == 0
    assert "Traceback" not in running.log


def test_commands_reach_it_by_its_address(files: SecureServer, secure: Running) -> None:
    token = files.folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    command = [*STATEHOLD, "tools", "--url", secure.url, "--token-file", str(token)]

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **environment}
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    done = run(SSL_CERT_FILE=str(files.authority.certificate))
    assert done.returncode == 0, done.stderr
    assert "inc" in done.stdout
    refused = run()
    assert refused.returncode == 1
    assert "the certificate is not trusted" in refused.stderr


async def test_the_console_is_there_with_a_secure_cookie(
    files: SecureServer, secure: Running
) -> None:
    url, _, code = console_address(secure.data).partition("/console#code=")
    assert url == secure.url
    async with files.raw(secure.url) as raw:
        assert (await raw.get("/console/")).status_code == 200
        body = json.dumps({"code": code})
        headers = {"content-type": "application/json", "origin": secure.url}
        answer = await raw.post("/api/v1/login", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-statehold=")
        assert "secure" in cookie.lower()
        headers = {"cookie": cookie.partition(";")[0]}
        async with raw.stream("GET", "/api/v1/events", headers=headers) as events:
            assert await anext(events.aiter_bytes()) == b": open\n\n"


def refusal(files: SecureServer, tmp_path: Path, *options: str) -> str:
    """Return the line of a server that does not start."""
    command = [*statehold(), "serve", "--config", str(files.config), "--data", str(tmp_path / "d")]
    done = subprocess.run(
        [*command, "--port", "0", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    return line


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    files = SecureServer(tmp_path)
    files.key.chmod(0o640)
    assert f"chmod 600 {files.key}" in refusal(files, tmp_path)
    files.key.chmod(0o600)
    files.key.write_bytes(files.authority.sign("other")[1].read_bytes())
    line = refusal(files, tmp_path)
    assert "server.tls.certificate, server.tls.key" in line
    assert "KEY_VALUES_MISMATCH" in line
    files.certificate.unlink()
    assert "no such file" in refusal(files, tmp_path)


@pytest.mark.thorough
async def test_workers_share_a_port_with_tls(tmp_path: Path) -> None:
    files = SecureServer(tmp_path)
    with serving(files.config, tmp_path / "data", "--workers", "2") as running:
        for name in ("second", "third"):
            files.install(name)
            for _ in range(8):
                await until(lambda name=name: files.name_at(running.url) == name)
        async with (
            files.raw(running.url) as raw,
            Client(
                streamable_http_client(f"{running.url}/mcp", http_client=raw), cache=None
            ) as client,
        ):
            session = await opened_session(client)
            assert await count(client, session) == 1


@pytest.mark.thorough
def test_a_socket_of_systemd_speaks_tls(tmp_path: Path) -> None:
    files = SecureServer(tmp_path)
    words = ["serve", "--config", str(files.config), "--data", str(tmp_path / "data")]
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, *STATEHOLD, *words],
            env={**os.environ, "LISTEN_FDS": "1"},
            stdin=listener.fileno(),
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            connection = http.client.HTTPSConnection(
                *listener.getsockname(), timeout=60, context=files.context()
            )
            connection.request("GET", "/livez")
            assert json.loads(connection.getresponse().read())["pid"] == process.pid
            connection.close()
        finally:
            process.terminate()


@pytest.mark.thorough
async def test_the_event_loop_of_python_speaks_tls_too(tmp_path: Path) -> None:
    files, folder = SecureServer(tmp_path), tmp_path / "without"
    folder.mkdir()
    (folder / "uvloop.py").write_text("raise ImportError\n")
    environment = {"PYTHONPATH": str(folder)}
    with serving(files.config, tmp_path / "data", env=environment, as_installed=True) as running:
        async with (
            files.raw(running.url) as raw,
            Client(
                streamable_http_client(f"{running.url}/mcp", http_client=raw), cache=None
            ) as client,
        ):
            session = await opened_session(client)
            assert await count(client, session) == 1
            assert (await raw.post("/mcp", content=b"x" * (5 << 20))).status_code in (400, 413)
        with socket.create_connection(place(running.url)):
            assert running.stop(within=10) == 0
    assert "Traceback" not in running.log
