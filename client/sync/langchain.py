"""The tools of a session as LangChain tools, for programs that block.

Otherwise as statehold.client.integrations.langchain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import SessionError
from ..integrations.langchain import (
    Artifact,
    Content,
    Handler,
    answered,
    made,
    offered,
    picked,
    raised,
)
from ..results import Tool
from .client import Client
from .session import Session

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


def langchain_tools(
    target: Session | Client,
    *,
    names: Collection[str] | None = None,
    images: bool = True,
    handle_tool_error: Handler | None = None,
    timeout_seconds: float | None = None,
) -> list[StructuredTool]:
    """Return the tools of a session's services, each bound to it, or of all services, bound to no session.

    They may be called in any thread, and from async code, where LangChain runs them in threads.
    """

    def bound(tool: Tool) -> StructuredTool:
        def func(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            try:
                result = target.call_tool(tool.name, arguments, timeout_seconds=timeout_seconds)
            except SessionError as error:
                raise raised(error, images=images) from error
            return answered(result, images=images)

        return made(tool, handle_tool_error, func=func)

    client = target.client if isinstance(target, Session) else target
    return [bound(tool) for tool in picked(client.run(offered, target.inner, names), names)]


__all__ = ["langchain_tools"]
