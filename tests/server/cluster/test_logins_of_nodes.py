"""Nodes that share a login: its tokens live for a second, and the provider ends it when a refresh token is used twice."""

from __future__ import annotations

from collections.abc import Generator
from itertools import cycle
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from support.cluster_nodes import Nodes, Start
from support.gateway_process import Way, opened_session, text_of
from support.openid_provider import (
    OpenIdProvider,
    add_login,
    running_provider,
    typescript_server,
)
from support.waiting import until

NAMES = ("a", "b", "c")
SEALING_KEY = "sealing-key-of-the-tests-0123456789"
SESSIONS = 2
"""Sessions of each node that call at once."""
RENEWALS = 6
pytestmark = [pytest.mark.fault, pytest.mark.thorough]


class Shared(Nodes):
    """Three nodes of one database, whose service demands tokens."""

    def __init__(self, start: Start, folder: Path, provider: OpenIdProvider, url: str) -> None:
        super().__init__(
            start, {"sealing": {"keys": [SEALING_KEY]}, "services": {"notes": {"url": url}}}
        )
        self._folder = folder
        self._provider = provider
        self.calls = 0
        self.refused = 0
        """Calls that met a token that had ended on its way."""

    async def log_in(self) -> None:
        config, data = self._folder / "a.toml", self._folder / "command"
        await anyio.to_thread.run_sync(add_login, config, data, "notes")

    async def call(self, name: str, calls: int) -> None:
        """Call the service of a node so often, in one session."""
        way = Way("http", "modern", Path(), Path(), url=self.running[name].url)
        async with way.connect() as client:
            session = await opened_session(client)

            async def is_answered() -> bool:
                result = await client.call_tool("whoami", {"session_id": session})
                assert not result.is_error or "401" in text_of(result), text_of(result)
                return not result.is_error

            # A node looks for a login once a second, and for the tools that it could not list.
            await until(is_answered)
            for _ in range(calls):
                self.refused += not await is_answered()
                self.calls += 1

    async def call_until_renewed(self, name: str) -> None:
        before = self._provider.renewals()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.call, name, 1_000_000)
            await until(lambda: self._provider.renewals() > before)
            self.kill(name)
            tasks.cancel_scope.cancel()


@pytest.fixture
def provider(
    npm_peers: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Generator[OpenIdProvider]:
    log = tmp_path / "provider.log"
    with running_provider(log, seconds=1, hold_ms=getattr(request, "param", 0)) as running:
        yield running


@pytest.fixture
def nodes(start: Start, tmp_path: Path, provider: OpenIdProvider) -> Generator[Shared]:
    with typescript_server(provider.issuer) as port:
        opened = Shared(start, tmp_path, provider, f"http://127.0.0.1:{port}/mcp")
        try:
            for name in NAMES:
                opened.run(name)
            yield opened
        finally:
            opened.stop()


async def test_no_refresh_token_is_used_twice(nodes: Shared, provider: OpenIdProvider) -> None:
    await nodes.log_in()
    async with anyio.create_task_group() as tasks:
        for name in NAMES * SESSIONS:
            tasks.start_soon(nodes.call, name, 1_000_000)
        await until(lambda: provider.renewals() >= RENEWALS, within=90)
        tasks.cancel_scope.cancel()
    assert {each["outcome"] for each in provider.grants()} == {"success"}
    # Some tokens end on the way, more on a slow machine.
    assert nodes.refused < nodes.calls / 2


@pytest.mark.parametrize(("provider", "kills"), [(100, 3)], indirect=["provider"])
async def test_a_node_that_dies_while_it_renews_costs_the_login_at_most(
    nodes: Shared, provider: OpenIdProvider, kills: int
) -> None:
    """The answer of the provider is lost. No other node uses the token again, until the lease is over."""
    for _, name in zip(range(kills), cycle(NAMES), strict=False):
        await nodes.log_in()
        await nodes.call_until_renewed(name)
        other = next(each for each in NAMES if each != name)
        with anyio.move_on_after(1):
            await nodes.call(other, 1)
        nodes.run(name)
    await nodes.log_in()
    for name in NAMES:
        await nodes.call(name, 1)
    assert {each["outcome"] for each in provider.grants()} == {"success"}
