"""Gateways that are open in this process, over services of a test's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from statehold.server.config.load import load
from statehold.server.gateway.gateway import Gateway
from statehold.server.process.gateway import open_gateway

from .gateway_process import JSON, toml


@asynccontextmanager
async def serving_gateway(folder: Path, **services: JSON) -> AsyncGenerator[Gateway]:
    """Open a gateway with these services and its data in a folder, once all of them were probed."""
    config = folder / "statehold.toml"
    config.write_text(toml({"services": services}))
    flags = {"data": str(folder / "data")}
    async with open_gateway(
        load(config=config, services=None, flags=flags), address="test"
    ) as gateway:
        await gateway.probes.ready()
        yield gateway


__all__ = ["serving_gateway"]
