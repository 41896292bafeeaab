"""The tools of a session as LangChain tools. Needs the extra: `pip install "statehold[langchain]"`, langchain-core alone.

    async with client.session("research", services=["browser"]) as s:
        agent = create_agent(model, await s.langchain_tools())

A tool knows its session: no model sees a `session_id`, and nothing depends on where a tool is called. Tools of a client
use the current session instead, or the shared one of auto_session(), when they are called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..errors import SessionError
from ..langchain_tool import (
    Artifact,
    Content,
    Handler,
    SessionTool,
    SessionToolError,
    build_tool,
    content_and_artifact,
    default_tools,
    tool_exception,
)
from ..results import CallResult, Tool

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


class ToolSource(Protocol):
    """A session or a client: it lists tools and calls them."""

    async def list_tools(self, *, names: Collection[str] | None = None) -> list[Tool]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        read_timeout_seconds: float | None = None,
    ) -> CallResult: ...


async def langchain_tools(
    source: ToolSource,
    *,
    names: Collection[str] | None = None,
    images: bool = True,
    handle_tool_error: Handler | None = None,
    read_timeout_seconds: float | None = None,
) -> list[StructuredTool]:
    """Return the tools of a session's services, each bound to it, or of all services, bound to no session.

    `names` selects tools, also Statehold's own, such as `state_get`. Without `images` a model reads a placeholder instead of
    each image; the artifact always holds the images. By default a model reads the error of a failed call; LangChain's
    `handle_tool_error` changes that.
    """

    def bind(tool: Tool) -> StructuredTool:
        async def coroutine(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            try:
                result = await source.call_tool(
                    tool.name, arguments, read_timeout_seconds=read_timeout_seconds
                )
            except SessionError as error:
                raise tool_exception(error, images=images) from error
            return content_and_artifact(result, images=images)

        return build_tool(tool, handle_tool_error, func=_refuse_to_block, coroutine=coroutine)

    return [bind(tool) for tool in default_tools(await source.list_tools(names=names), names)]


def _refuse_to_block(arguments: Mapping[str, Any]) -> NoReturn:
    raise NotImplementedError(
        "a tool of the async client: use `ainvoke`, or for `invoke` the tools of statehold.client.sync"
    )


__all__ = ["Artifact", "SessionTool", "SessionToolError", "ToolSource", "langchain_tools"]
