"""Operator requests, over the local socket of a node."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from statehold.server.operate.handler import OperateVerb, RunRequest
from statehold.server.operate.requests import OperatorRequest, ProcessUnavailable, ask
from statehold.server.sockets.address import remove_socket
from statehold.server.sockets.local_socket import LINE_BYTES, local_socket
from statehold.server.sockets.request import Refused, find_socket
from statehold.sessions.errors import SessionNotFound
from statehold.sessions.json_codec import JSON

SESSIONS = OperatorRequest(tool="operator_sessions")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Unix sockets")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "nodes"
    path.mkdir(mode=0o700)
    return path


@asynccontextmanager
async def serving(
    folder: Path, node: str, run: RunRequest, *, seconds: float = 120.0
) -> AsyncGenerator[Path]:
    verb = OperateVerb(run, seconds=seconds)
    async with local_socket(folder, node) as local, local.serve({"operate": verb}):
        assert local.path is not None
        yield local.path


@pytest.fixture
async def served(folder: Path) -> AsyncIterator[list[OperatorRequest]]:
    """A node whose handler returns the arguments of each request and collects the requests."""
    requests: list[OperatorRequest] = []

    async def handler(request: OperatorRequest) -> JSON:
        requests.append(request)
        if request.tool == "unknown":
            raise SessionNotFound
        if request.tool == "broken":
            raise RuntimeError("secret inside")
        return request.arguments

    async with serving(folder, "n1", handler):
        yield requests


async def answer_nothing(request: OperatorRequest) -> JSON:
    return {}


async def raw(folder: Path, data: bytes) -> dict[str, Any]:
    with anyio.fail_after(10):
        async with await anyio.connect_unix(find_socket(folder, "n1")) as stream:
            await stream.send(data)
            found = b""
            while not found.endswith(b"\n"):
                found += await stream.receive()
    return json.loads(found)


async def test_request_reaches_the_handler_and_its_answer_comes_back(
    folder: Path, served: list[OperatorRequest]
) -> None:
    request = OperatorRequest(
        tool="session_close", arguments={"session_id": "sh_1", "n": 2**80}, owner=":bob"
    )
    assert await ask(folder, "n1", request) == {"session_id": "sh_1", "n": 2**80}
    assert served == [request]


async def test_session_error_comes_back_with_its_code_and_recovery(
    folder: Path, served: list[OperatorRequest]
) -> None:
    with pytest.raises(Refused) as error_info:
        await ask(folder, "n1", OperatorRequest(tool="unknown"))
    assert error_info.value.code == "session_not_found"
    assert error_info.value.recovery == SessionNotFound().recovery


async def test_fault_of_the_handler_is_reported_without_its_text(
    folder: Path, served: list[OperatorRequest]
) -> None:
    with pytest.raises(Refused) as error_info:
        await ask(folder, "n1", OperatorRequest(tool="broken"))
    assert error_info.value.code == "internal"
    assert "secret" not in str(error_info.value)
    assert await ask(folder, "n1", SESSIONS) == {}


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{\n",
        b"[]\n",
        b"\xff\n",
        b"{}\n",
        b'{"tool": "session_info"}\n',
        b'{"verb": 1}\n',
        b'{"verb": "operate"}\n',
        b'{"verb": "operate", "tool": 1}\n',
        b'{"verb": "operate", "tool": "session_info", "arguments": []}\n',
        b'{"verb": "operate", "tool": "session_info", "owner": 1}\n',
        b'{"verb": "operate", "tool": "session_info", "session": "a"}\n',
        b"[" * 10_000 + b"\n",
        b"x" * (LINE_BYTES + 10) + b"\n",
    ],
)
async def test_malformed_request_is_an_invalid_argument(
    folder: Path, served: list[OperatorRequest], line: bytes
) -> None:
    assert (await raw(folder, line))["error"]["code"] == "invalid_argument"
    assert served == []


async def test_handler_that_hangs_is_given_up_in_time(folder: Path) -> None:
    async def handler(request: OperatorRequest) -> JSON:
        await anyio.sleep_forever()
        return {}

    with anyio.fail_after(10):
        async with serving(folder, "n1", handler, seconds=0.05):
            with pytest.raises(Refused) as error_info:
                await ask(folder, "n1", SESSIONS)
            assert error_info.value.code == "call_timeout"


async def test_socket_is_private_and_gone_afterwards(
    folder: Path, served: list[OperatorRequest]
) -> None:
    async with serving(folder, "n2", answer_nothing) as path:
        assert path == folder / "n2.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    with pytest.raises(ProcessUnavailable, match="cannot be reached"):
        await ask(folder, "n2", SESSIONS)


async def test_socket_of_a_killed_node_is_no_answer_and_can_be_forgotten(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "n3.sock"))
    with pytest.raises(ProcessUnavailable):
        await ask(folder, "n3", SESSIONS)
    remove_socket(folder, "n3")
    remove_socket(folder, "n3")
    assert os.listdir(folder) == []


async def test_next_node_removes_the_sockets_of_killed_ones_and_no_others(
    folder: Path, served: list[OperatorRequest]
) -> None:
    with socket.socket(socket.AF_UNIX) as left, socket.socket(socket.AF_UNIX) as locked:
        left.bind(str(folder / "n3.sock"))
        locked.bind(str(folder / "n4.sock"))
        (folder / "n4.lock").touch()

    async with serving(folder, "n5", answer_nothing):
        assert sorted(os.listdir(folder)) == ["n1.sock", "n4.lock", "n4.sock", "n5.sock"]
    assert await ask(folder, "n1", SESSIONS) == {}


@pytest.fixture
def short_folder() -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="sh") as folder:
        yield folder


async def test_path_too_long_for_a_socket_is_served_from_the_temporary_folder(
    tmp_path: Path, short_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120)
    # Not below tmp_path, which may be too long for a socket itself.
    temporary = Path(short_folder)
    monkeypatch.setattr("tempfile.tempdir", short_folder)

    async def handler(request: OperatorRequest) -> JSON:
        return {"n": 1}

    async with serving(folder, "n1", handler) as path:
        assert path.parent == temporary / f"statehold-{os.getuid()}"
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        # A client with another temporary folder finds it all the same.
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
        assert await ask(folder, "n1", SESSIONS) == {"n": 1}
    assert not path.exists()
    assert os.listdir(folder) == []


async def test_a_temporary_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trap = tmp_path / f"statehold-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)

    with pytest.raises(PermissionError):
        async with serving(tmp_path / ("x" * 120), "n1", answer_nothing):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="counts /proc/self/fd")
async def test_no_descriptor_is_left(folder: Path) -> None:
    async def round_trip() -> None:
        async with serving(folder, "n1", answer_nothing):
            await ask(folder, "n1", SESSIONS)

    await round_trip()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await round_trip()
    assert len(os.listdir("/proc/self/fd")) == before
