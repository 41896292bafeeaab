"""The parts of the chaos benchmark: the network breaks, the database loses commits, and stale writes show."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from sqlalchemy.exc import OperationalError

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.database import Database
from benchmarks.chaos.relay import Flow, Relays, run_relays
from benchmarks.chaos.watch import JournalImage, Watch
from benchmarks.soak.findings import Findings

SECONDS = 20.0
LINK = "link"


@asynccontextmanager
async def linked(relays: Relays) -> AsyncGenerator[tuple[SocketStream, SocketStream]]:
    """Yield both ends of a connection through a relay: the client's and the server's."""
    send, receive = anyio.create_memory_object_stream[SocketStream](1)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    done = anyio.Event()

    async def accept(stream: SocketStream) -> None:
        await send.send(stream)
        await done.wait()

    async with listener, send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, accept)
        to = listener.extra(anyio.abc.SocketAttribute.local_address)
        port = await relays.lead(LINK, f"127.0.0.1:{cast('tuple[str, int]', to)[1]}")
        async with (
            await anyio.connect_tcp("127.0.0.1", port) as client,
            await receive.receive() as server,
        ):
            yield client, server
        done.set()
        tasks.cancel_scope.cancel()


async def test_a_link_passes_bytes_on_in_both_directions() -> None:
    with anyio.fail_after(SECONDS):
        async with run_relays() as relays, linked(relays) as (client, server):
            await client.send(b"up")
            assert await server.receive() == b"up"
            await server.send(b"down")
            assert await client.receive() == b"down"


@pytest.mark.parametrize("flow", ["stalled up", "stalled down"])
async def test_a_link_that_is_cut_one_way_passes_bytes_on_the_other_way(flow: Flow) -> None:
    with anyio.fail_after(SECONDS):
        async with run_relays() as relays, linked(relays) as ends:
            sender, receiver = ends if flow == "stalled up" else reversed(ends)
            await relays.set_flow(LINK, flow)
            await sender.send(b"late")
            await receiver.send(b"now")
            assert await sender.receive() == b"now"
            with pytest.raises(TimeoutError), anyio.fail_after(0.2):
                await receiver.receive()
            await relays.set_flow(LINK, "open")
            assert await receiver.receive() == b"late"


async def test_a_refused_link_loses_its_connections_and_takes_no_new_ones() -> None:
    with anyio.fail_after(SECONDS):
        async with run_relays() as relays, linked(relays) as (client, server):
            await relays.set_flow(LINK, "refused")
            for end in (client, server):
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await end.receive()
            port = cast("tuple[str, int]", client.extra(anyio.abc.SocketAttribute.remote_address))
            async with await anyio.connect_tcp("127.0.0.1", port[1]) as again:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await again.receive()


@asynccontextmanager
async def database(*, follow: bool) -> AsyncGenerator[Database]:
    async with run_relays() as relays:
        server = Database(relays)
        try:
            await server.start(follow=follow)
            yield server
        finally:
            server.stop()


@pytest.mark.thorough
@pytest.mark.usefixtures("postgresql")
async def test_a_failover_loses_the_commits_that_it_reports_and_no_others() -> None:
    findings = Findings()
    with anyio.fail_after(SECONDS * 3):
        async with database(follow=True) as server:
            await server.query("CREATE TABLE written (at float8)")
            write = (
                "INSERT INTO written VALUES (extract(epoch FROM clock_timestamp())) RETURNING at"
            )
            written: list[float] = []

            async def write_until_it_is_away() -> None:
                while True:
                    try:
                        written.append((await server.query(write))[0]["at"])
                    except OperationalError:
                        return

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_until_it_is_away)
                await server.fail_over(0.3, findings, anyio.lowlevel.checkpoint)
                tasks.cancel_scope.cancel()
            stored = {row["at"] for row in await server.query("SELECT at FROM written")}
            lost = [at for at in written if at not in stored]
            assert lost
            assert all(findings.explains(at) for at in lost)
            # The new server has a standby of its own.
            await server.fail_over(0.0, findings, anyio.lowlevel.checkpoint)
            assert await server.query("SELECT 1 AS one") == [{"one": 1}]


@pytest.mark.thorough
@pytest.mark.usefixtures("postgresql")
async def test_the_clock_of_the_database_is_put_ahead() -> None:
    difference = "SELECT extract(epoch FROM clock_timestamp() - now())::int AS seconds"
    with anyio.fail_after(SECONDS * 3):
        async with database(follow=False) as server:
            await server.set_clock(60)
            assert await server.query(difference) == [{"seconds": 60}]


@asynccontextmanager
async def cluster_with_tables(folder: Path, *, follow: bool = False) -> AsyncGenerator[Cluster]:
    """Yield a cluster without nodes, whose database has one session with a state and two entries, of epoch 2."""
    async with database(follow=follow) as server:
        for statement in (
            "CREATE TABLE session AS SELECT 'sh_1'::text AS id, 2::bigint AS epoch",
            "CREATE TABLE state AS SELECT 'sh_1'::text AS session_id, 4::bigint AS version",
            "CREATE TABLE journal (session_id text, seq bigint, epoch bigint)",
            "INSERT INTO journal VALUES ('sh_1', 1, 2), ('sh_1', 2, 2)",
        ):
            await server.query(statement)
        cluster = Cluster(folder, Findings(), lease_seconds=4.0)
        cluster.database = server
        yield cluster


@pytest.mark.thorough
@pytest.mark.usefixtures("postgresql")
async def test_a_number_that_falls_is_found_unless_the_database_failed_over(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS * 3):
        async with cluster_with_tables(tmp_path, follow=True) as cluster:
            watch = Watch(cluster)
            await watch.look()
            await cluster.database.query("UPDATE state SET version = 3")
            await watch.look()
            stale = ["state of sh_1 fell from 4 to 3"]
            assert cluster.findings.of("stale writes") == stale
            await cluster.database.fail_over(0.0, cluster.findings, anyio.lowlevel.checkpoint)
            await cluster.database.query("UPDATE state SET version = 2")
            await watch.look()
            assert cluster.findings.of("stale writes") == stale


@pytest.mark.thorough
@pytest.mark.usefixtures("postgresql")
async def test_an_entry_that_an_older_owner_replaced_is_found(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS * 3):
        async with cluster_with_tables(tmp_path) as cluster:
            image = await JournalImage.take(cluster)
            await cluster.database.query("INSERT INTO journal VALUES ('sh_1', 3, 3)")
            await image.compare()
            assert not cluster.findings.of("stale writes")
            await cluster.database.query("UPDATE journal SET epoch = 1 WHERE seq = 2")
            await image.compare()
            [finding] = cluster.findings.of("stale writes")
            assert finding == "sh_1: entry 2 of epoch 2 was replaced by one of 1"
