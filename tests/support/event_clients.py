"""Clients with tokens that ask for events of their sessions, and the settings of a server for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from .event_receiver import SECRET
from .gateway_process import JSON, Running, service
from .task_client import TaskClient, task_client
from .token_file import write_tokens

ADA, BEN = "ada-token-0123456789", "ben-token-0123456789"


def events_settings(tokens: Path) -> JSON:
    """Return settings with the tokens of two principals, ada and ben."""
    write_tokens(tokens, f"{ADA} ada\n{BEN} ben\n")
    return {
        "toolsets": ["core", "lifecycle", "view", "state", "admin"],
        # On loopback, so that receivers may be there too.
        "server": {"tokens": str(tokens), "public_url": "http://127.0.0.1:9"},
        "services": {"quick": service("asking", "--era", "modern", "--long")},
    }


class Client:
    """A client with a token, of the newer era."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client

    async def ask(self, method: str, **params: Any) -> JSON:
        """Return the answer, with its result or its error."""
        return await self._client.send(method, params)

    async def result(self, method: str, **params: Any) -> JSON:
        answer = await self.ask(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, **arguments: Any) -> JSON:
        result = await self.result("tools/call", name=tool, arguments=arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    async def error(self, method: str, **params: Any) -> tuple[int, Any]:
        """Return the code and the data of the error that answers a request."""
        answer = await self.ask(method, **params)
        assert "error" in answer, answer
        return answer["error"]["code"], answer["error"].get("data")

    async def open(self, **arguments: Any) -> str:
        return (await self.call("session_create", **arguments))["session_id"]

    async def pause(self, session_id: str) -> None:
        await self.call("session_pause", session_id=session_id)


def by_webhook(url: str, secret: str = SECRET) -> JSON:
    return {"mode": "webhook", "url": url, "secret": secret}


@asynccontextmanager
async def clients_of(server: Running) -> AsyncGenerator[tuple[Client, Client]]:
    url, (ada, ben) = f"{server.url}/mcp", [{"authorization": f"Bearer {t}"} for t in (ADA, BEN)]
    async with (
        task_client(url, headers=ada) as first,
        task_client(url, headers=ben) as second,
    ):
        yield Client(first), Client(second)


__all__ = ["Client", "by_webhook", "clients_of", "events_settings"]
