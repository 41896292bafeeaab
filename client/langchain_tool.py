"""A tool of a session as a tool of LangChain: its arguments, its content for a model, its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from .errors import (
    NoCurrentSession,
    ServerUnreachable,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionNotFound,
    ToolFailed,
)
from .results import SESSION_META, CallResult, Tool, object_of
from .runs import default_run_id

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool, ToolException
except ModuleNotFoundError as missing:
    if missing.name is None or not missing.name.startswith("langchain_core"):
        raise
    raise ImportError(
        "langchain-core is not installed; it comes with `pip install 'statehold[langchain]'`"
    ) from missing

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON

logger = logging.getLogger("statehold.client")

Content: TypeAlias = str | list[Any]
Handler: TypeAlias = bool | str | Callable[[ToolException], Content]
"""The type of LangChain's `handle_tool_error`."""

FATAL: Final = (
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
        is_tool_error = isinstance(error, ToolFailed)
        text = error.message if is_tool_error else f"{error.code}: {error}\n{error.recovery}"
        super().__init__(text)
        self.error = error
        self.content = (_content(error.result, images=images) if is_tool_error else None) or text
        """The content that a model reads."""

    @property
    def code(self) -> str:
        return self.error.code


_FAILURES: ContextVar[list[SessionToolError] | None] = ContextVar("_FAILURES", default=None)
"""The errors of the running call of a SessionTool. LangChain keeps only their text."""


class SessionTool(StructuredTool):
    """A tool of a session. Its function takes all arguments as one mapping.

    The message of a failed call has the artifact of the tool's answer, as that of any other call. Outside of every block of
    Session.run() the id that LangChain has for a call is its run in the history.
    """

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with _record_failures() as failures:
            return _add_artifact(super().run(*args, **kwargs), failures)

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        with _record_failures() as failures:
            return _add_artifact(await super().arun(*args, **kwargs), failures)

    # LangChain gives `config` only to functions that have it in their signature.
    def _run(
        self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        with _use_run_of(run_manager):
            return super()._run(*args, config=config, run_manager=run_manager, **kwargs)

    async def _arun(
        self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        with _use_run_of(run_manager):
            return await super()._arun(*args, config=config, run_manager=run_manager, **kwargs)

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # As keywords, the arguments of a tool would clash with LangChain's own: `config` would be lost, `self` would raise.
        return (self._parse_input(tool_input, tool_call_id),), {}


@contextmanager
def _use_run_of(run_manager: Any) -> Generator[None]:
    token = default_run_id.set(None if run_manager is None else str(run_manager.run_id))
    try:
        yield
    finally:
        default_run_id.reset(token)


@contextmanager
def _record_failures() -> Generator[list[SessionToolError]]:
    failures: list[SessionToolError] = []
    token = _FAILURES.set(failures)
    try:
        yield failures
    finally:
        _FAILURES.reset(token)


def _add_artifact(output: Any, failures: list[SessionToolError]) -> Any:
    if failures and isinstance(output, ToolMessage) and output.artifact is None:
        error = failures[-1].error
        if isinstance(error, ToolFailed):
            output.artifact = artifact_of(error.result)
    return output


def default_tools(tools: list[Tool], names: Collection[str] | None) -> list[Tool]:
    """Return the tools that a model gets: those that were named, else all but Statehold's own."""
    if names is not None:
        return tools
    offered = [tool for tool in tools if tool.service is not None]
    if not offered:
        # A model without tools answers all the same, and nobody would look for the reason.
        logger.warning(
            "no service offers a tool now; `statehold services check` and wait_service() tell which ones start"
        )
    return offered


def build_tool(tool: Tool, handle_tool_error: Handler | None, **function: Any) -> StructuredTool:
    """Return a tool of LangChain that runs a function: `func` or `coroutine`."""
    schema = {**tool.arguments, "properties": tool.arguments.get("properties", {})}
    return SessionTool(
        name=tool.name,
        description=tool.description or tool.title or tool.name,
        args_schema=schema,
        metadata={**tool.annotations, "service": tool.service},
        response_format="content_and_artifact",
        handle_tool_error=_readable_error if handle_tool_error is None else handle_tool_error,
        **function,
    )


def tool_exception(error: SessionError, *, images: bool) -> Exception:
    """Return the exception that a LangChain tool raises for a session error."""
    if isinstance(error, FATAL):
        return error
    failure = SessionToolError(error, images=images)
    failures = _FAILURES.get()
    if failures is not None:
        failures.append(failure)
    return failure


def content_and_artifact(result: CallResult, *, images: bool) -> tuple[Content, Artifact]:
    """Return the content of a result for a model, and the artifact."""
    return _content(result, images=images), artifact_of(result)


def artifact_of(result: CallResult) -> Artifact:
    """Return the parts of a result beside the text that a model reads."""
    return Artifact(
        structured_content=result.structured_content,
        images=[
            _langchain_block(block, True) for block in result.blocks if block.get("type") == "image"
        ],
        content=result.blocks,
        notice=result.notice,
        session=object_of(result.meta.get(SESSION_META)) or None,
    )


def _content(result: CallResult, *, images: bool) -> Content:
    """Return the content for a model, with the notice, since it says what was lost. Text alone is one string.

    Structured content is part of it where the tool wrote no text: a model reads no artifact.
    """
    blocks = [_langchain_block(block, images) for block in result.payload.get("content") or ()]
    if result.structured_text and all(block.get("type") != "text" for block in result.blocks):
        blocks.insert(0, {"type": "text", "text": result.structured_text})
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _langchain_block(block: JSON, images: bool) -> JSON:
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


def _readable_error(exception: ToolException) -> Content:
    return exception.content if isinstance(exception, SessionToolError) else str(exception)


__all__ = [
    "Artifact",
    "Content",
    "Handler",
    "SessionTool",
    "SessionToolError",
    "build_tool",
    "content_and_artifact",
    "default_tools",
    "tool_exception",
]
