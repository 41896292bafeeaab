"""Bounds of the open `subscriptions/listen` requests."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from support.gateway_process import toml
from support.token_file import write_tokens

from statehold.server.config.load import load
from statehold.server.process.gateway import open_gateway
from statehold.server.protocol import listening
from statehold.server.protocol.server import StateholdServer


@pytest.mark.parametrize(("has_tokens", "most"), [(True, 6), (False, 8)])
async def test_one_caller_leaves_streams_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tokens: bool, most: int
) -> None:
    monkeypatch.setattr(listening, "MAX_STREAMS", 8)
    tokens = tmp_path / "tokens"
    write_tokens(tokens, "k3Jq9-0123456789abcdef somebody\n")
    config = tmp_path / "statehold.toml"
    config.write_text(toml({"services": {}}))
    flags = {"data": str(tmp_path / "data")}
    settings = load(config=config, services=None, flags=flags)
    if has_tokens:
        server = settings.server.model_copy(update={"tokens": tokens})
        settings = settings.model_copy(update={"server": server})
    async with (
        open_gateway(settings, address="test") as gateway,
        Client(StateholdServer(gateway, version="0"), cache=None) as client,
        AsyncExitStack() as streams,
    ):
        with anyio.fail_after(20):
            for _ in range(most):
                await streams.enter_async_context(client.listen(tools_list_changed=True))
            with pytest.raises(MCPError) as refused:
                await streams.enter_async_context(client.listen(tools_list_changed=True))
            assert refused.value.error.data["code"] == "session_limit"
            await streams.aclose()
            async with client.listen(tools_list_changed=True):
                pass
