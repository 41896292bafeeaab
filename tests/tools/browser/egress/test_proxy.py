"""The users that may use the filtering proxy, and the connections left when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from support.proxy_ends import LOCAL, OVER, Browser, browser, connect, get, hello, port_of, site

from statehold.sessions.errors import NotAllowed
from statehold.tools.browser.egress.egress_service import Egress
from statehold.tools.browser.egress.network_policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy
from statehold.tools.browser.egress.socks import SocksReply

NOBODY = 65534

ASK = """
import os, socket, sys
# Another user may not be able to import what is needed to connect.
"localhost".encode("idna")
os.setuid(int(sys.argv[1]))
with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as asking:
    try:
        asking.sendall(b"\\5\\1\\0\\5\\1\\0\\1\\x7f\\0\\0\\1" + int(sys.argv[3]).to_bytes(2, "big"))
        if sys.argv[4] == "False":
            sys.exit()
        print(asking.recv(2).hex())
    except ConnectionError:
        print("")
"""


async def answer_to(user: int, through: int, port: int, *, stays: bool = True) -> str:
    """Return the first bytes of the proxy's answer to a process of a user, or nothing when that process does not stay."""
    command = [sys.executable, "-c", ASK, str(user), str(through), str(port), str(stays)]
    completed = await anyio.run_process(command, cwd="/", stderr=subprocess.STDOUT)
    return completed.stdout.decode().strip()


async def test_each_access_has_a_port_and_a_policy_of_its_own(proxy: FilteringProxy) -> None:
    handler, connected = hello(b"hi")
    mine, other = await proxy.admit(LOCAL), await proxy.admit(NetworkPolicy())
    assert mine.server != other.server
    async with site(handler) as port:
        assert await get(mine, f"127.0.0.1:{port}") == b"hi"
        assert await connect(other, f"127.0.0.1:{port}") is SocksReply.NOT_ALLOWED
    assert len(connected) == 1
    assert (mine.statistics().refusals, other.statistics().refusals) == (0, 1)


async def test_a_port_belongs_to_its_access_until_that_is_freed(proxy: FilteringProxy) -> None:
    access, other = await proxy.admit(LOCAL), await proxy.admit(LOCAL)
    async with browser(access) as one:
        access.revoke()
        # A connection that has asked for nothing yet ends as well.
        with pytest.raises(OVER):
            await one.stream.receive()
    async with browser(access) as late:
        with pytest.raises(OVER):
            await late.stream.receive()
    access.free()
    access.free()
    await anyio.wait_all_tasks_blocked()
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp("127.0.0.1", port_of(access))
    async with browser(other):
        pass


async def test_a_connection_accepted_while_its_access_was_revoked_is_not_served() -> None:
    async with FilteringProxy() as proxy:
        access = await proxy.admit(LOCAL)
        with anyio.CancelScope() as scope, access.connection(scope):
            access.revoke()
            await anyio.sleep_forever()
        with anyio.CancelScope() as late, access.connection(late):
            await anyio.sleep_forever()


async def test_a_closing_proxy_admits_no_access(leaks: Any) -> None:
    refused: list[RuntimeError] = []

    async def admit() -> None:
        try:
            await proxy.admit(LOCAL)
        except RuntimeError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks, FilteringProxy() as proxy:
        tasks.start_soon(admit)
        # It has asked for its port by then.
        await anyio.lowlevel.checkpoint()
    assert len(refused) == 1
    await leaks.check()


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and to be root, to be another"
)
async def test_another_user_of_the_machine_is_not_served(proxy: FilteringProxy) -> None:
    handler, connected = hello(b"hi")
    access = await proxy.admit(LOCAL)
    async with site(handler) as port:
        assert await answer_to(NOBODY, port_of(access), port) == ""
        # Linux reports root as the owner of a closed socket.
        assert await answer_to(NOBODY, port_of(access), port, stays=False) == ""
        assert not connected
        assert await answer_to(os.geteuid(), port_of(access), port) == "0500"


async def test_leaving_ends_everything(leaks: Any) -> None:
    async def stuck(stream: SocketStream) -> None:
        await anyio.sleep_forever()

    async with site(stuck) as port:
        async with FilteringProxy() as proxy:
            streams: list[Browser] = []
            for _ in range(3):
                access = await proxy.admit(LOCAL)
                streams.append(Browser(await anyio.connect_tcp("127.0.0.1", port_of(access))))
            await streams[0].connect(f"127.0.0.1:{port}")
            await streams[1].stream.send(b"\5\1")
            assert proxy.connections >= 1
        assert proxy.connections == 0
        for one in streams:
            with pytest.raises(OVER):
                await one.stream.receive()
            await one.stream.aclose()
        with pytest.raises(RuntimeError):
            await proxy.admit(LOCAL)
    await leaks.check()


async def test_an_error_of_its_user_passes_through_as_it_is(leaks: Any) -> None:
    with pytest.raises(KeyError):
        async with FilteringProxy():
            raise KeyError
    with anyio.move_on_after(0.01):
        async with FilteringProxy() as proxy, browser(await proxy.admit(LOCAL)):
            await anyio.sleep_forever()
    await leaks.check()


async def test_the_hosts_of_a_caller_hold_from_the_next_connection(proxy: FilteringProxy) -> None:
    handler, _ = hello(b"hi")
    hosts: list[tuple[str, ...] | None] = [None]
    access = await proxy.admit(LOCAL, hosts=lambda: hosts[0])
    async with site(handler) as port:
        for allowed, is_served in (
            (None, True),
            ((), False),
            (("*.example.org", "127.0.0.2"), False),
            ((f"127.0.0.1:{port}",), True),
            (("*",), True),
        ):
            hosts[0] = allowed
            if is_served:
                assert await get(access, f"127.0.0.1:{port}") == b"hi"
            else:
                assert await connect(access, f"127.0.0.1:{port}") is SocksReply.NOT_ALLOWED
    # The hosts of a caller allow nothing that the policy refuses.
    strict = await proxy.admit(NetworkPolicy(), hosts=lambda: ("127.0.0.1", "*"))
    async with site(handler) as port:
        assert await connect(strict, f"127.0.0.1:{port}") is SocksReply.NOT_ALLOWED


async def test_a_remote_browser_is_refused_to_a_caller_with_few_hosts() -> None:
    hosts: list[tuple[str, ...] | None] = [("example.org",)]
    async with anyio.create_task_group() as tasks:
        egress = Egress(LOCAL, tasks=tasks, remote=True, hosts_of=lambda owner: hosts[0])
        with pytest.raises(NotAllowed, match="browser_hosts"):
            await egress.admit(lambda host, why: None, owner="ada")
        hosts[0] = None
        assert await egress.admit(lambda host, why: None, owner="ada") is None
