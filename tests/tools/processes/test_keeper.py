"""The keeper: a real one, its real children, and nodes that die, stop or race."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import anyio
import pytest
from support.kept_children import ECHO, LINGER, Nodes, adopt, die, next_note, send, start
from support.process_exit import alive, until_gone
from support.selection import matrix

from statehold.keeper import protocol
from statehold.tools.processes.child_process import KeeperHandle
from statehold.tools.processes.keeper import KeptIdentity
from statehold.tools.processes.keeper_command import KeeperRefusal

SPAWN: dict[str, Any] = {
    "verb": "spawn",
    "command": [sys.executable, "-c", "pass"],
    "env": {"A": "b"},
    "cwd": "/",
    "mark": "m:1",
    "session": "s",
    "service": "s",
    "generation": 1,
    "epoch": 1,
}
BAD_FIELDS: list[dict[str, Any]] = [
    {"env": ["A=b"]},
    {"env": {"A": 1}},
    {"command": []},
    {"command": "true"},
    {"command": [1]},
    {"mark": ["m"]},
    {"mark": ""},
    {"epoch": "1"},
    {"session": {}},
    {"cwd": None},
]
BAD_REQUESTS: list[dict[str, Any]] = [
    {"verb": ["list"]},
    {"verb": "end", "key": {}},
    {"verb": "adopt", "session": "s", "service": "s", "generation": 1, "epoch": 1e400},
    *({**SPAWN, **change} for change in BAD_FIELDS),
]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
    pytest.mark.fault,
]


async def test_the_children_of_a_killed_keeper_end_and_another_keeper_is_started(
    nodes: Nodes,
) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    keeper = client.pid
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    await until_gone(child.pid)
    await child.wait_for_exit(5)
    assert "SIGKILL" in child.describe_end()
    await child.aclose()
    another = await start(nodes, ECHO, client=client)
    assert another.call_log is not None
    assert client.pid not in (None, keeper)
    await another.aclose()


@pytest.mark.thorough
async def test_calls_go_on_while_the_keeper_is_stopped(nodes: Nodes) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    assert client.pid is not None
    os.kill(client.pid, signal.SIGSTOP)
    try:
        for number in range(10):
            await send(child, "call")
            assert (await next_note(child))["number"] == number
        # A new child is not kept, since the keeper does not answer.
        other = await start(nodes, ECHO, client=client)
        assert other.call_log is None
        await other.aclose()
    finally:
        os.kill(client.pid, signal.SIGCONT)
    await child.aclose()


async def test_a_keeper_that_accepts_no_connection_delays_no_start(nodes: Nodes) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    assert client.pid is not None
    os.kill(client.pid, signal.SIGSTOP)
    waiting: list[socket.socket] = []
    folder = protocol.open_folder(nodes.folder)
    try:
        with suppress(BlockingIOError):
            while True:
                waiting.append(protocol.new_socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect(protocol.address_of(folder))
        other = await start(nodes, ECHO)
        assert other.call_log is None
        await other.aclose()
    finally:
        os.kill(client.pid, signal.SIGCONT)
        os.close(folder)
        for connection in waiting:
            connection.close()
    await child.aclose()


async def test_children_and_keeper_end_when_no_node_comes(nodes: Nodes) -> None:
    client = nodes.client(linger=0.2)
    code = """
import subprocess
escaped = subprocess.Popen(["setsid", "sleep", "3600"], stdin=subprocess.DEVNULL)
note(escaped=escaped.pid)
sys.stdin.readline()
"""
    child = await start(nodes, code, client=client)
    escaped, keeper = (await next_note(child))["escaped"], client.pid
    assert isinstance(escaped, int)
    assert keeper is not None
    await client.aclose()
    for pid in (child.pid, escaped, keeper):
        await until_gone(pid)
    assert not (nodes.folder / protocol.SOCKET).exists()


async def test_a_child_that_is_kept_waits_longer_than_the_others_for_the_next_node(
    nodes: Nodes,
) -> None:
    client = nodes.client(linger=0.2)
    handles = [KeeperHandle(client, KeptIdentity("sh_a", name, 1, 1)) for name in ("a", "b")]
    kept, other = [await start(nodes, ECHO, client=client, kept=handle) for handle in handles]
    assert kept.kept is not None
    await kept.kept.keep(LINGER)
    await die(client, kept)
    await until_gone(other.pid)
    assert alive(kept.pid)
    identity = KeptIdentity("sh_a", "a", 1, 2)
    adopted = await adopt(nodes, 2, kept=KeeperHandle(nodes.client(linger=0.2), identity))
    assert adopted.pid == kept.pid


async def test_a_child_that_is_left_goes_on_for_the_next_node(nodes: Nodes) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    child.leave()
    await child.aclose()
    assert alive(child.pid)
    adopted = await adopt(nodes, 2)
    await send(adopted, "hello")
    assert (await next_note(adopted))["method"] == "hello"


async def test_a_child_has_the_settings_of_its_node(nodes: Nodes) -> None:
    code = """
import signal
mask = os.umask(0)
ignored = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
           if signal.getsignal(n) is signal.SIG_IGN]
note(umask=mask, ignored=ignored, folder=os.getcwd())
"""
    mask = os.umask(0o022)
    try:
        child = await start(nodes, code)
        note = await next_note(child)
        assert (note["umask"], note["ignored"], note["folder"]) == (0o022, [], os.getcwd())
    finally:
        os.umask(mask)


async def test_a_child_that_its_node_never_recorded_is_replaced(nodes: Nodes) -> None:
    first = nodes.client()
    lost = await start(nodes, ECHO, client=first)
    await die(first, lost)
    second = nodes.client()
    child = await start(nodes, ECHO, client=second, epoch=2)
    await until_gone(lost.pid)
    await send(child, "one")
    await next_note(child)
    await die(second, child)
    adopted = await adopt(nodes, epoch=3)
    assert adopted.pid == child.pid


async def test_a_child_has_no_descriptor_but_its_own(nodes: Nodes) -> None:
    client = nodes.client()
    code = "note(fds=sorted(map(int, os.listdir('/proc/self/fd'))))"
    for epoch in (1, 2):
        child = await start(nodes, code, client=client, epoch=epoch)
        # The fourth is that of the listing itself.
        assert (await next_note(child))["fds"] == [0, 1, 2, 3]
        await child.aclose()


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
async def test_a_program_that_keeps_descriptors_open_does_not_get_those_of_a_child(
    nodes: Nodes,
) -> None:
    """Event loops start programs, such as the driver of the browser, without closing other descriptors."""
    child = await start(nodes, ECHO)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as program:  # noqa: ASYNC220 - close_fds
        await child.aclose()
        program.kill()
    assert child.returncode == 0


async def test_a_link_in_place_of_the_log_is_not_followed(nodes: Nodes) -> None:
    target = nodes.folder.parent / "target"
    target.write_text("kept")
    (nodes.folder / "keeper.log").symlink_to(target)
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    assert child.kept is None
    assert target.read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_gets_no_answer(nodes: Nodes) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    path = nodes.folder / protocol.SOCKET
    for folder in [*path.parents][:-2]:
        os.chmod(folder, 0o755)
    os.chmod(path, 0o777)
    program = (
        "import socket, sys\n"
        "connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "connection.connect(sys.argv[1])\n"
        "try:\n"
        '    connection.send(b\'{"verb":"hello","version":1,"linger":null,"number":1}\')\n'
        "    print(connection.recv(1000))\n"
        "except OSError as error:\n"
        "    print(type(error).__name__)\n"
    )
    command = ["/usr/bin/python3", "-c", program, str(path)]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            ["setpriv", "--reuid", "65534", "--clear-groups", *command],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    )
    assert done.stdout.strip() in ("b''", "BrokenPipeError", "ConnectionResetError")
    await child.aclose()


@pytest.mark.parametrize(
    "packet",
    matrix(
        *(b"{", b'{"verb":"list"}', b"[]"),
        *(b'{"verb":"hello","version":0,"linger":1}', b'{"verb":7}'),
        quick=2,
    ),
)
async def test_a_malformed_packet_ends_its_connection_or_is_refused(
    nodes: Nodes, packet: bytes
) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    folder = protocol.open_folder(nodes.folder)
    with protocol.new_socket() as connection:
        connection.settimeout(5)
        connection.connect(protocol.address_of(folder))
        connection.send(packet)
        answer = connection.recv(1000)
    os.close(folder)
    assert answer == b"" or json.loads(answer)["error"] == protocol.INVALID
    await send(child, "on")
    assert (await next_note(child))["number"] == 0
    await child.aclose()


async def test_no_packet_ends_the_keeper(nodes: Nodes) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    keeper = client.pid
    folder = protocol.open_folder(nodes.folder)
    try:
        for packets in (
            [b"[" * 100_000],
            [b'{"verb": "list", "number": ' + b"[" * 900 + b"]" * 900 + b"}"],
            [b'{"verb": "hello", "version": 1, "linger": Infinity}'],
            [b'{"verb": "hello", "version": 1, "linger": 1e400}'],
            [b'{"verb": "hello", "version": 1, "linger": 1e300}'],
            [b'{"verb": "hello", "version": 1, "linger": NaN}'],
            *(
                [b'{"verb": "hello", "version": 1, "linger": null}', json.dumps(request).encode()]
                for request in BAD_REQUESTS
            ),
        ):
            with protocol.new_socket() as connection:
                connection.settimeout(20)
                connection.connect(protocol.address_of(folder))
                for packet in packets:
                    connection.send(packet)
                    # It answers, or closes the connection.
                    connection.recv(4096)
            assert alive(child.pid), packets[-1]
    finally:
        os.close(folder)
    other = await start(nodes, ECHO, client=client)
    assert other.call_log is not None
    assert client.pid == keeper
    await other.aclose()
    await child.aclose()


@pytest.mark.parametrize("name", matrix(7, None, 1.5))
async def test_a_descriptor_without_a_proper_name_is_not_held(nodes: Nodes, name: Any) -> None:
    client = nodes.client()
    child = await start(nodes, ECHO, client=client)
    assert child.kept is not None
    descriptors = f"/proc/{client.pid}/fd"
    before = len(os.listdir(descriptors))
    for _ in range(3):
        with pytest.raises(KeeperRefusal):
            await child.kept.hold(name, 0)
    assert len(os.listdir(descriptors)) == before
    await child.aclose()
