"""The tools of a space for LangChain. Needs the extra: `pip install "statehold[langchain]"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import SessionError
from .names import Named
from .session import Session

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

    from ..langchain import Artifact, Content
    from .context import Context


class LangChain:
    """The result of for_langchain(). The tools run with and without `await`, in any thread and any event loop of asyncio."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list_tools(self) -> list[StructuredTool]:
        """Return the tools of the session of the block around, bound to it; no model sees a session_id.

        Outside of a block it returns the tools of the space: each call finds its session as Context.use_tool() does.
        """
        session = self._context.current_session
        return self._made(self._context.client.run(self._named, session), session)

    async def list_tools_async(self) -> list[StructuredTool]:
        session = self._context.current_session
        return self._made(await self._context.client.wait(self._named, session), session)

    async def _named(self, session: Session | None) -> list[Named]:
        space = self._context.space
        return await (space.tools(again=True) if session is None else space.tools_of(session.inner))

    def _made(self, tools: list[Named], session: Session | None) -> list[StructuredTool]:
        return [self._tool(each, session) for each in tools]

    def _tool(self, named: Named, bound: Session | None) -> StructuredTool:
        # Imported here, because the rest of this package works without the extra.
        from ..langchain import answered, made, raised

        context, name, service = self._context, named.tool.name, named.tool.service

        async def called(
            session: Session | None, arguments: Mapping[str, Any]
        ) -> tuple[Content, Artifact]:
            space = context.space
            try:
                if session is None:
                    found = await space.call_somewhere(name, arguments, service=service, check=True)
                else:
                    found = await space.call(
                        session.inner, name, arguments, service=service, check=True
                    )
            except SessionError as error:
                raise raised(error, images=True) from error
            return answered(found, images=True)

        def func(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            return context.client.run(called, bound or context.current_session, arguments)

        async def coroutine(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
            return await context.client.wait(called, bound or context.current_session, arguments)

        return made(named.tool, None, func=func, coroutine=coroutine)


__all__ = ["LangChain"]
