"""The user that owns the other end of a local connection."""

from __future__ import annotations

import errno
import logging
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from statehold.tools.browser.egress.peer import SocketOwners

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@contextmanager
def connected() -> Generator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
        with near, far:
            yield near, far


@pytest.fixture
def peers() -> Generator[SocketOwners]:
    peers = SocketOwners()
    yield peers
    peers.close()


async def test_a_connection_that_is_closed_already_is_not_ours(peers: SocketOwners) -> None:
    with connected() as (near, far):
        assert peers.are_ours(near)
        far.sendall(b"blind")
        far.close()
        assert not peers.are_ours(near)


async def test_a_peer_that_only_ended_its_half_is_still_there(peers: SocketOwners) -> None:
    with connected() as (near, far):
        far.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
        assert peers.are_ours(near)


async def test_an_answer_to_an_interrupted_request_is_skipped(peers: SocketOwners) -> None:
    with connected() as (near, far), connected() as (late, gone):
        gone.close()
        asking: Any = peers._netlink_socket  # pyright: ignore[reportPrivateUsage]

        class Twice:
            def __getattr__(self, name: str) -> Any:
                return getattr(asking, name)

            def send(self, data: bytes) -> int:
                # An interrupted caller has sent a request before this one.
                asking.send(data[:8] + bytes(4) + data[12:])
                return asking.send(data)

        peers._netlink_socket = Twice()  # pyright: ignore
        assert peers.are_ours(near)
        assert not peers.are_ours(late)
        del far


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EPERM])
async def test_a_system_that_does_not_name_the_peer_is_reported_and_all_are_served(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail_with(number, monkeypatch)
    with caplog.at_level(logging.WARNING):
        peers = SocketOwners()
    assert "other users" in caplog.text
    with connected() as (near, far):
        far.close()
        assert peers.are_ours(near)
    peers.close()


async def test_a_lack_of_descriptors_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(errno.EMFILE, monkeypatch)
    with pytest.raises(OSError, match="no"):
        SocketOwners()


def fail_with(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def make(family: int = -1, *arguments: Any, **options: Any) -> socket.socket:
        if family == getattr(socket, "AF_NETLINK", None):
            raise OSError(number, "no")
        return real(family, *arguments, **options)

    monkeypatch.setattr("statehold.tools.browser.egress.peer.socket.socket", make)
