"""The types of the tools for LangChain, and of what the pytest fixtures hold."""

from __future__ import annotations

from typing import Any, assert_type

from langchain_core.tools import StructuredTool, ToolException

from statehold.client import Client, Session, sync
from statehold.client.integrations import langchain
from statehold.client.integrations.langchain import Artifact, SessionToolError
from statehold.client.integrations.testing import (
    BlockingStdioSessions,
    ServerProcess,
    StdioSessions,
)
from statehold.client.sync import langchain as blocking


def told(error: ToolException) -> str:
    return error.code if isinstance(error, SessionToolError) else ""


async def tools(client: Client, s: Session) -> None:
    assert_type(await s.langchain_tools(names=["inc"], images=False), list[StructuredTool])
    assert_type(
        await langchain.langchain_tools(client, handle_tool_error=told), list[StructuredTool]
    )


def blocking_tools(client: sync.Client, s: sync.Session) -> None:
    assert_type(s.langchain_tools(read_timeout_seconds=1), list[StructuredTool])
    assert_type(blocking.langchain_tools(client), list[StructuredTool])


def kept(artifact: Artifact) -> None:
    assert_type(artifact["structured_content"], dict[str, Any] | None)
    assert_type(artifact["notice"], str | None)


async def fixtures(
    each: StdioSessions, other: BlockingStdioSessions, server: ServerProcess
) -> None:
    assert_type(await each(["server"]), Session)
    assert_type(other(["server"], fds=0, era="legacy"), sync.Session)
    assert_type(server.url, str)
