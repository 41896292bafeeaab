"""The tools of a session as LangChain tools. Needs the extra: `pip install "statehold[langchain]"`, langchain-core alone.

    async with client.session("research", services=["browser"]) as s:
        agent = create_agent(model, await s.langchain_tools())

A tool knows its session: no model sees a `session_id`, and nothing depends on where a tool is called. Tools of a client
use the current session instead, or the shared one of auto_session(), when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, TypedDict

from ..client import Client
from ..errors import (
    NoCurrentSession,
    ServerUnreachable,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionNotFound,
    ToolFailed,
)
from ..results import JSON, SESSION_META, CallResult, Tool, table
from ..session import Session

try:
    from langchain_core.tools import StructuredTool, ToolException
except ModuleNotFoundError as missing:
    if missing.name is None or not missing.name.startswith("langchain_core"):
        raise
    raise ImportError(
        "langchain-core is not installed; it comes with `pip install 'statehold[langchain]'`"
    ) from missing

Content: TypeAlias = str | list[Any]
Handler: TypeAlias = bool | str | Callable[[ToolException], Content]
"""The type of LangChain's `handle_tool_error`."""

BEYOND: Final = (
    SessionNotFound,
    SessionExpired,
    SessionClosed,
    NoCurrentSession,
    ServerUnreachable,
)
"""Errors that a model cannot act on: they are raised unchanged, to the program around the agent."""


class Artifact(TypedDict):
    """The artifact of a `ToolMessage`: the parts of a result beside the text that the model reads. All of it is JSON."""

    structured_content: JSON | None
    images: list[JSON]
    """Content blocks of LangChain: `{"type": "image", "base64": ..., "mime_type": ...}`."""
    content: list[JSON]
    """The content blocks as MCP has them, without the notice."""
    notice: str | None
    session: JSON | None
    """The session after the call: id, name, status, generation, expires_at."""


class SessionToolError(ToolException):
    """Raised when a call failed in a way that a model can act on: its text is the code, the cause and the remedy."""

    def __init__(self, error: SessionError, *, images: bool = True) -> None:
        # The error text of a tool is shown without code and remedy.
        failed = isinstance(error, ToolFailed)
        says = error.message if failed else f"{error.code}: {error}\n{error.recovery}"
        super().__init__(says)
        self.error = error
        self.content = (_content(error.result, images=images) if failed else None) or says
        """The content that a model reads."""

    @property
    def code(self) -> str:
        return self.error.code


class SessionTool(StructuredTool):
    """A tool of a session. Its function takes all arguments as one mapping."""

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # As keywords, the arguments of a tool would clash with LangChain's own: `config` would be lost, `self` would raise.
        return (self._parse_input(tool_input, tool_call_id),), {}


async def langchain_tools(
    target: Session | Client,
    *,
    names: Collection[str] | None = None,
    images: bool = True,
    handle_tool_error: Handler | None = None,
    timeout_seconds: float | None = None,
) -> list[StructuredTool]:
    """Return the tools of a session's services, each bound to it, or of all services, bound to no session.

    `names` selects tools, also Statehold's own, such as `state_get`. Without `images` a model reads a placeholder instead of
    each image; the artifact always holds the images. By default a model reads the error of a failed call; LangChain's
    `handle_tool_error` changes that.
    """

    def bound(tool: Tool) -> StructuredTool:
        async def coroutine(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            try:
                result = await target.call_tool(
                    tool.name, arguments, timeout_seconds=timeout_seconds
                )
            except SessionError as error:
                raise raised(error, images=images) from error
            return answered(result, images=images)

        return made(tool, handle_tool_error, func=_blocked, coroutine=coroutine)

    return [bound(tool) for tool in picked(await offered(target, names), names)]


async def offered(target: Session | Client, names: Collection[str] | None) -> list[Tool]:
    """Return the tools that langchain_tools() selects from."""
    if isinstance(names, str):
        raise TypeError("names is a list of names of tools, such as ['state_get']")
    if isinstance(target, Client):
        return await target.tools()
    return await (target.tools() if names is None else target.client.tools())


def _blocked(arguments: Mapping[str, Any]) -> NoReturn:
    raise NotImplementedError(
        "a tool of the async client: use `ainvoke`, or for `invoke` the tools of statehold.client.sync"
    )


def picked(tools: Sequence[Tool], names: Collection[str] | None) -> list[Tool]:
    """Return the tools of these names, in the order of the list; without names all but Statehold's own.

    Raises:
        ValueError: there is no tool of one of the names.
    """
    if names is None:
        return [tool for tool in tools if tool.service is not None]
    missing = sorted(set(names) - {tool.name for tool in tools})
    if missing:
        raise ValueError(f"there is no tool {', '.join(missing)}")
    return [tool for tool in tools if tool.name in names]


def made(tool: Tool, handle_tool_error: Handler | None, **function: Any) -> StructuredTool:
    """Return a tool of LangChain that runs a function: `func` or `coroutine`."""
    schema = {**tool.arguments, "properties": tool.arguments.get("properties", {})}
    return SessionTool(
        name=tool.name,
        description=tool.description or tool.title or tool.name,
        args_schema=schema,
        metadata={**tool.annotations, "service": tool.service},
        response_format="content_and_artifact",
        handle_tool_error=_read if handle_tool_error is None else handle_tool_error,
        **function,
    )


def raised(error: SessionError, *, images: bool) -> Exception:
    """Return the exception that a LangChain tool raises for a session error."""
    return error if isinstance(error, BEYOND) else SessionToolError(error, images=images)


def answered(result: CallResult, *, images: bool) -> tuple[Content, Artifact]:
    """Return the content of a result for a model, and the artifact."""
    artifact = Artifact(
        structured_content=result.structured,
        images=[_shown(block, True) for block in result.blocks if block.get("type") == "image"],
        content=result.blocks,
        notice=result.notice,
        session=table(result.meta.get(SESSION_META)) or None,
    )
    return _content(result, images=images), artifact


def _content(result: CallResult, *, images: bool) -> Content:
    """Return the content for a model, with the notice, since it says what was lost. Text alone is one string."""
    blocks = [_shown(block, images) for block in result.payload.get("content") or ()]
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _shown(block: JSON, images: bool) -> JSON:
    """Return one content block of MCP as one of LangChain."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": block["text"]}
    if kind == "image" and not images:
        return {"type": "text", "text": f"[an image: {block['mimeType']}]"}
    if kind in ("image", "audio"):
        return {"type": kind, "base64": block["data"], "mime_type": block["mimeType"]}
    if kind == "resource":
        resource: JSON = block["resource"]
        if "text" in resource:
            return {"type": "text", "text": resource["text"]}
        mime_type = resource.get("mimeType") or "application/octet-stream"
        return {"type": "file", "base64": resource["blob"], "mime_type": mime_type}
    if kind == "resource_link":
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    return {"type": "text", "text": f"[{kind}]"}


def _read(exception: ToolException) -> Content:
    return exception.content if isinstance(exception, SessionToolError) else str(exception)


__all__ = ["Artifact", "SessionTool", "SessionToolError", "langchain_tools"]
