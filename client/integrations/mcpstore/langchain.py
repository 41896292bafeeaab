"""The tools of a space for LangChain. Needs the extra: `pip install "statehold[langchain]"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import SessionError
from .names import SpaceTool
from .session import Session, current_sessions

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

    from ...langchain_tool import Artifact, Content
    from ...sync.portal import Portal
    from .space import Space


class LangChain:
    """The result of for_langchain(). The tools run with and without `await`, in any thread and any event loop of asyncio."""

    def __init__(self, portal: Portal, space: Space) -> None:
        self._portal = portal
        self._space = space

    def list_tools(self) -> list[StructuredTool]:
        """Return the tools of the session whose `with` block is active, bound to it; no model sees a session_id.

        Outside of a block it returns the tools of the space: each call finds its session as Context.use_tool() does.
        """
        session = current_sessions.find(self._space)
        return self._build_all(self._portal.run(self._list_tools, session), session)

    async def list_tools_async(self) -> list[StructuredTool]:
        session = current_sessions.find(self._space)
        return self._build_all(await self._portal.wait(self._list_tools, session), session)

    async def _list_tools(self, session: Session | None) -> list[SpaceTool]:
        space = self._space
        return await (space.tools(again=True) if session is None else space.tools_of(session.inner))

    def _build_all(self, tools: list[SpaceTool], session: Session | None) -> list[StructuredTool]:
        return [self._tool(each, session) for each in tools]

    def _tool(self, tool: SpaceTool, bound_session: Session | None) -> StructuredTool:
        # Imported here, because the rest of this package works without the extra.
        from ...langchain_tool import build_tool, content_and_artifact, tool_exception

        portal, space, name, service = self._portal, self._space, tool.tool.name, tool.tool.service

        async def call(
            session: Session | None, arguments: Mapping[str, Any]
        ) -> tuple[Content, Artifact]:
            try:
                if session is None:
                    result = await space.call_without_session(
                        name, arguments, service=service, check=True
                    )
                else:
                    result = await space.call(
                        session.inner, name, arguments, service=service, check=True
                    )
            except SessionError as error:
                raise tool_exception(error, images=True) from error
            return content_and_artifact(result, images=True)

        def func(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            return portal.run(call, bound_session or current_sessions.find(space), arguments)

        async def coroutine(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            return await portal.wait(call, bound_session or current_sessions.find(space), arguments)

        return build_tool(tool.tool, None, func=func, coroutine=coroutine)


__all__ = ["LangChain"]
