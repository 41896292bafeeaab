"""MCPStore's API for sessions, over Statehold: a program for MCPStore runs with one changed import.

    from statehold.client.integrations.mcpstore import MCPStore

    store = MCPStore.setup_store()
    store.for_store().add_service({"name": "browser", "url": "http://127.0.0.1:8931/sse"})
    with store.for_store().with_session("browser_task") as s:
        s.use_tool("browser_navigate", {"url": "http://shop.test/"})

Each method has a twin that ends in `_async`, for any event loop of asyncio. docs/use/coming-from.md lists the differences.
"""

from __future__ import annotations

from .block import SessionBlock
from .context import Context
from .langchain import LangChain
from .session import Session
from .store import MCPStore

__all__ = ["MCPStore", "Context", "Session", "SessionBlock", "LangChain"]
