"""Answers in so many parts that reading them at once would delay all other connections."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import h11
import pytest
from anyio.abc import SocketStream
from rawhttp import LOCAL, Handler, Told, browser, hello, read_head, read_rest, site

from statehold.tools.browser.egress.exchange import INTERIM, SLICE
from statehold.tools.browser.egress.policy import NetworkPolicy
from statehold.tools.browser.egress.proxy import FilteringProxy

CHUNKS = 4000
CONNECTIONS = 4


async def tiny(stream: SocketStream) -> None:
    await read_head(stream)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    await stream.send(head + b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n")


class Turns:
    """The number of message parts that were read between one pass of the event loop and the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy: list[int] = []
        self._since = 0
        monkeypatch.setattr(h11.Connection, "next_event", self._counted(h11.Connection.next_event))

    def _counted(self, next_event: object) -> object:
        assert callable(next_event)

        def counted(http: h11.Connection) -> object:
            self._since += 1
            return next_event(http)

        return counted

    async def watch(self) -> None:
        while True:
            if self._since:
                self.busy.append(self._since)
            self._since = 0
            await anyio.lowlevel.checkpoint()


async def test_connections_with_tiny_chunks_get_on_one_at_a_time(
    proxy: FilteringProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch)
    grant = await proxy.admit(LOCAL)

    async def fetch(port: int) -> None:
        async with browser(grant) as one:
            url = f"http://127.0.0.1:{port}/"
            await one.say(f"GET {url} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close")
            assert (await read_rest(one.stream)).endswith(b"\r\n0\r\n\r\n")

    async with site(tiny) as port, anyio.create_task_group() as tasks:
        tasks.start_soon(turns.watch)
        async with anyio.create_task_group() as fetching:
            for _ in range(CONNECTIONS):
                fetching.start_soon(fetch, port)
        tasks.cancel_scope.cancel()
    assert max(turns.busy) <= 2 * CONNECTIONS * SLICE
    assert len(turns.busy) >= CONNECTIONS * (CHUNKS // SLICE)


async def test_chunks_that_arrive_together_are_passed_on_together(proxy: FilteringProxy) -> None:
    async with site(tiny) as port, browser(await proxy.admit(LOCAL)) as one:
        lines = (f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Connection: close")
        _, _, body = (await read_rest(one.stream)).partition(b"\r\n\r\n")
    assert body.count(b"x") == CHUNKS
    assert len(body) < 2 * CHUNKS


def interim(count: int) -> Handler:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * count)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await read_rest(stream)

    return handler


@pytest.mark.parametrize(("count", "status"), [(INTERIM, 200), (INTERIM + 1, 502)])
async def test_interim_answers_are_bounded(proxy: FilteringProxy, count: int, status: int) -> None:
    async with site(interim(count)) as port, browser(await proxy.admit(LOCAL)) as one:
        assert (await one.get(f"http://127.0.0.1:{port}/")).status == status


async def test_what_is_between_the_chunks_counts_towards_the_largest_answer(
    proxy: FilteringProxy,
) -> None:
    async def handler(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await stream.send((b"1;" + b"y" * 5000 + b"\r\nx\r\n") * 100 + b"0\r\n\r\n")

    told = Told()
    policy = NetworkPolicy(private=True, response_bytes=1000)
    async with site(handler) as port, browser(await proxy.admit(policy, on_refused=told)) as one:
        lines = (f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Connection: close")
        with pytest.raises(anyio.BrokenResourceError):
            await read_rest(one.stream)
    assert len(told) == 1


async def test_a_request_body_in_pieces_arrives_whole(proxy: FilteringProxy) -> None:
    handler, seen = hello(b"ok")
    async with site(handler) as port, browser(await proxy.admit(LOCAL)) as one:
        lines = (f"POST http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}")
        await one.say(*lines, "Transfer-Encoding: chunked", body=b"1\r\nx\r\n" * 5 + b"0\r\n\r\n")
        assert (await one.hear()).body == b"ok"
    assert seen[0].partition(b"\r\n\r\n")[2].startswith(b"5\r\nxxxxx\r\n")
