"""Children of a keeper go from a node that died to the next one, in the state they are in."""

from __future__ import annotations

import json
import os
import signal
import sys

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest
from support.fork_server import ForkServer
from support.kept_children import (
    ECHO,
    LINGER,
    NOTE,
    Nodes,
    adopt,
    die,
    handle,
    next_note,
    send,
    start,
)
from support.process_exit import alive, until_gone

from statehold.keeper import protocol
from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.processes.framing import encode
from statehold.tools.processes.keeper import KeeperClient
from statehold.tools.processes.keeper_command import KeeperRefusal, KeeperUnreachable
from statehold.tools.upstream.transports.stdio import ChildProcessTransport, resume_stdio

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
    pytest.mark.fault,
]


NODE = """
import anyio, json, sys
from pathlib import Path
from statehold.tools.processes.child_process import ChildProcess, KeeperHandle
from statehold.tools.processes.keeper import KeeperClient, KeptIdentity
from statehold.tools.processes.ledger import Ledger

async def main():
    folder = Path(sys.argv[1])
    client = KeeperClient(folder, 30.0)
    child = await ChildProcess.start(
        [sys.executable, "-c", sys.argv[2]], service="service", ledger=Ledger(folder, node="n_a"),
        kept=KeeperHandle(client, KeptIdentity("sh_a", "service", 1, 1)))
    print(json.dumps({"keeper": client.pid, "child": child.pid}), flush=True)
    while True:
        item = await child.read_stream.receive()
        print(json.dumps(item.message.params), flush=True)

anyio.run(main)
"""


async def killed_node(
    fork_server: ForkServer, nodes: Nodes, code: str, lines: int
) -> list[dict[str, int]]:
    """Run a node with a child that runs `code`, kill the node with -9 after some lines, and return these."""
    command = ("-c", NODE, str(nodes.folder), NOTE + code)
    return [
        json.loads(line)
        for line in await anyio.to_thread.run_sync(
            lambda: fork_server.told_by(*command, lines=lines)
        )
    ]


async def test_a_line_that_a_killed_node_had_half_read_is_completed(
    fork_server: ForkServer, nodes: Nodes
) -> None:
    code = """
note(part=1)
sys.stdout.write('{"jsonrpc":"2.0","method":"note","par')
sys.stdout.flush()
while not os.path.exists(%r):
    time.sleep(0.01)
sys.stdout.write('ams":{"part":2}}' + chr(10))
sys.stdout.flush()
time.sleep(3600)
"""
    go_on = nodes.folder / "go-on"
    started, note = await killed_node(fork_server, nodes, code % str(go_on), 2)
    assert note == {"part": 1}
    adopted = await adopt(nodes, epoch=2)
    assert adopted.pid == started["child"]
    go_on.touch()
    assert await next_note(adopted) == {"part": 2}
    await adopted.aclose()


READS_LATE = """
note(started=True)
while not os.path.exists(%r):
    time.sleep(0.01)
for line in sys.stdin:
    try:
        note(method=json.loads(line)["method"])
    except ValueError:
        note(malformed=True)
"""
PIPE_BYTES = 65536
"""The bytes that a pipe takes before it is read."""


async def test_a_line_whose_end_alone_is_missing_does_not_run(nodes: Nodes) -> None:
    """The caller was told that nobody knows whether its call ran, and may have made it again elsewhere."""
    go_on = nodes.folder / "go-on"
    first = nodes.client()
    child = await start(nodes, READS_LATE % str(go_on), client=first)
    await next_note(child)
    rest = len(encode(JSONRPCRequest(jsonrpc="2.0", id=1, method="call", params={"filler": ""})))
    filler = "x" * (PIPE_BYTES + 1 - rest)
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="call", params={"filler": filler})
    await child.write_stream.send(SessionMessage(request))
    await die(first, child)
    adopted = await adopt(nodes, epoch=2)
    go_on.touch()
    await send(adopted, "next")
    answers = [await next_note(adopted) for _ in range(2)]
    assert answers == [{"malformed": True}, {"method": "next"}]


async def test_a_line_that_the_last_node_had_half_written_is_ended(nodes: Nodes) -> None:
    go_on = nodes.folder / "go-on"
    first = nodes.client()
    child = await start(nodes, READS_LATE % str(go_on), client=first)
    await next_note(child)
    resumption = ChildProcessTransport(child).resumption
    assert resumption is not None
    for number, filler in ((1, ""), (2, "x" * 2**20)):
        resumption.record_call(number, f"op-{number}")
        params = {"filler": filler}
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method="call", params=params)
        await child.write_stream.send(SessionMessage(request))
    await die(first, child)
    adopted = await adopt(nodes, epoch=2)
    resumption = ChildProcessTransport(adopted).resumption
    assert resumption is not None
    traffic = resumption.earlier_traffic()
    assert traffic.calls == {1: "op-1"}
    assert not traffic.has_all_calls
    go_on.touch()
    await send(adopted, "next")
    answers = [await next_note(adopted) for _ in range(3)]
    assert answers == [{"method": "call"}, {"malformed": True}, {"method": "next"}]


async def test_a_child_that_ended_without_a_node_is_described(
    fork_server: ForkServer, nodes: Nodes
) -> None:
    code = """
note(part=1)
while not os.path.exists(%r):
    time.sleep(0.01)
sys.stderr.write("the disk is full" + chr(10))
sys.stderr.flush()
note(part=2)
sys.exit(7)
"""
    go_on = nodes.folder / "go-on"
    started, _ = await killed_node(fork_server, nodes, code % str(go_on), 2)
    go_on.touch()
    await until_gone(started["child"])
    adopted = await adopt(nodes, epoch=2)
    assert await next_note(adopted) == {"part": 2}
    await adopted.wait_for_exit(5)
    assert adopted.describe_end() == "exited with code 7"
    assert "the disk is full" in adopted.last_output()
    await adopted.aclose()


@pytest.mark.thorough
async def test_a_child_that_floods_without_a_node_waits_for_the_next_one(nodes: Nodes) -> None:
    code = """
note(started=True)
sys.stdin.readline()
for number in range(20_000):
    note(number=number, filler="x" * 1000)
"""
    first = nodes.client()
    child = await start(nodes, code, client=first)
    assert await next_note(child) == {"started": True}
    child.read_stream.abort()
    await send(child, "go")
    await die(first, child)
    adopted = await adopt(nodes, epoch=2)
    numbers = [(await next_note(adopted))["number"] for _ in range(20_000)]
    assert numbers == list(range(20_000))
    await adopted.aclose()


async def test_an_earlier_epoch_gets_no_child(nodes: Nodes) -> None:
    first = nodes.client()
    child = await start(nodes, ECHO, client=first, epoch=5)
    await die(first, child)
    for epoch in (0, 4):
        with pytest.raises(KeeperRefusal, match="stale"):
            await adopt(nodes, epoch=epoch)
    adopted = await adopt(nodes, epoch=6)
    # The node of the past epoch can neither start another one, nor end this one.
    late = await start(nodes, ECHO, client=first, epoch=5)
    assert late.call_log is None
    await late.aclose()
    await child.aclose()
    assert alive(adopted.pid)
    await send(adopted, "still")
    assert (await next_note(adopted))["method"] == "still"
    await adopted.aclose()


async def test_no_node_adopts_a_child_whose_node_is_connected(nodes: Nodes) -> None:
    """It may read the answers of the child, even if it lost the session."""
    first = nodes.client()
    child = await start(nodes, ECHO, client=first)
    for client in (first, nodes.client(in_use_seconds=0)):
        with pytest.raises(KeeperRefusal, match="in_use"):
            await adopt(nodes, epoch=2, client=client)
    await send(child, "one")
    assert await next_note(child) == {"number": 0, "method": "one"}
    await die(first, child)
    adopted = await adopt(nodes, epoch=2)
    assert adopted.pid == child.pid


async def test_the_keeper_sees_the_end_of_a_node_before_it_refuses_an_adoption(
    nodes: Nodes,
) -> None:
    """The keeper gets the request of the next node before the event of the end."""
    first = nodes.client()
    child = await start(nodes, ECHO, client=first)
    assert first.pid is not None
    fields = handle(first, epoch=2).identity.fields()
    folder = protocol.open_folder(nodes.folder)
    with protocol.new_socket() as second:
        second.settimeout(5)
        second.connect(protocol.address_of(folder))
        greeting = {"verb": "hello", "version": protocol.VERSION, "linger": LINGER, "number": 1}
        protocol.send(second, greeting)
        assert protocol.receive(second) is not None
        os.kill(first.pid, signal.SIGSTOP)
        try:
            protocol.send(second, {"verb": "adopt", **fields, "number": 2})
            await die(first, child)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        received = protocol.receive(second)
    os.close(folder)
    assert received is not None
    answer, descriptors = received
    protocol.close_all(descriptors)
    assert answer.get("pid") == child.pid


async def test_an_adoption_that_the_keeper_answers_too_late_can_be_repeated(nodes: Nodes) -> None:
    first = nodes.client()
    child = await start(nodes, ECHO, client=first)
    await die(first, child)
    second = nodes.client(adopt_seconds=0.05)
    await second.status()
    assert second.pid is not None
    os.kill(second.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ServiceUnavailable):
            async with resume_stdio(handle(second, epoch=2), service="service"):
                raise AssertionError("the keeper is stopped")
    finally:
        os.kill(second.pid, signal.SIGCONT)
    await second.status()
    adopted = await adopt(nodes, epoch=2, client=nodes.client())
    await send(adopted, "one")
    assert await next_note(adopted) == {"number": 0, "method": "one"}


async def test_an_adoption_waits_longer_for_the_keeper_than_another_request(nodes: Nodes) -> None:
    first = nodes.client()
    child = await start(nodes, ECHO, client=first)
    await die(first, child)
    second = nodes.client(answer_seconds=0.05, adopt_seconds=30.0)
    await second.status()
    assert second.pid is not None
    os.kill(second.pid, signal.SIGSTOP)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(adopt, nodes, 2, second)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(KeeperUnreachable):
                await second.status()
            os.kill(second.pid, signal.SIGCONT)
    finally:
        os.kill(second.pid, signal.SIGCONT)
    assert nodes.children[-1].pid == child.pid


@pytest.mark.thorough
async def test_one_of_two_racing_nodes_gets_a_child(nodes: Nodes) -> None:
    holder = nodes.client()
    first, second = [nodes.client(in_use_seconds=0) for _ in range(2)]
    child = await start(nodes, ECHO, client=holder)
    await die(holder, child)
    # So that the keeper has a node all the time.
    await nodes.client().status()
    for epoch in range(2, 102):
        outcomes: dict[KeeperClient, str] = {}

        async def race(client: KeeperClient, epoch: int, outcomes: dict[KeeperClient, str]) -> None:
            try:
                process = await client.adopt(handle(client, epoch).identity)
            except KeeperRefusal as error:
                outcomes[client] = str(error)
            else:
                outcomes[client] = "adopted"
                for pipe in process.take_pipes():
                    os.close(pipe.fileno())
                os.close(process.call_log)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(race, first, epoch, outcomes)
            tasks.start_soon(race, second, epoch, outcomes)
        assert sorted(outcomes.values()) == ["adopted", "in_use"]
        await next(client for client in outcomes if outcomes[client] == "adopted").aclose()
    assert alive(child.pid)
