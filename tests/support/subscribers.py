"""Clients that are subscribed to a resource, in either protocol era."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp import Client

from .gateway_process import Way

Next = Callable[[], Awaitable[str]]


@asynccontextmanager
async def subscribed(way: Way, uri: str) -> AsyncGenerator[tuple[Client, Next]]:
    """A client that is subscribed to a resource, and a function that waits for its next notification."""
    send, receive = anyio.create_memory_object_stream[str](math.inf)

    async def handle(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and not way.modern:
            send.send_nowait(str(message.params.uri))

    async def next_uri() -> str:
        with anyio.fail_after(20):
            return await receive.receive()

    with send, receive:
        async with way.connect(message_handler=handle) as client:
            if not way.modern:
                await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
                yield client, next_uri
                return
            async with (
                client.listen(resource_subscriptions=[uri]) as changes,
                anyio.create_task_group() as tasks,
            ):

                async def listen() -> None:
                    async for change in changes:
                        send.send_nowait(str(getattr(change, "uri", "")))

                tasks.start_soon(listen)
                yield client, next_uri
                tasks.cancel_scope.cancel()


__all__ = ["subscribed"]
