"""A program for MCPStore with one changed import: a session in a block, by hand, automatic, of an agent, in async code.

    uv run python examples/migrating_from_mcpstore.py

Statehold runs inside of the program: no server, no port, nothing on disk. docs/use/coming-from.md says what differs.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from statehold.client import CallResult
from statehold.client.integrations.mcpstore import MCPStore  # was: from mcpstore import MCPStore

NOTEBOOK: dict[str, Any] = {
    "name": "notebook",
    "command": sys.executable,
    "args": ["-m", "statehold.shell.demo.server"],
}


def number(result: CallResult) -> int:
    """Return what the notebook counted to."""
    count: int = (result.structured_content or {})["count"]
    return count


def main() -> None:
    store = MCPStore.setup_store()
    context = store.for_store()
    context.add_service(NOTEBOOK)
    context.wait_service("notebook")

    with context.with_session("block") as s:
        s.bind_service("notebook")
        s.use_tool("write_note", {"text": "the block has one page"})
        print("in a block:   ", (s.use_tool("read_notes").structured_content or {})["notes"])
        print(
            "              ",
            f"{s.service_count} service, {s.tool_count} tools, {s.list_tools()[0]}",
        )

    session = context.create_session("by hand")
    session.bind_service("notebook")
    counted = [number(session.use_tool("count")) for _ in range(3)]
    session.restart_session()
    print("by hand:      ", *counted, "restarted:", number(session.use_tool("count")))
    session.close_session()
    print("              ", "active" if session.is_active else "closed")

    context.session_auto()
    print("automatic:    ", *(number(context.use_tool("count")) for _ in range(3)))
    context.session_manual()
    print("manual again: ", *(number(context.use_tool("count")) for _ in range(3)))

    agent = store.for_agent("team_1")
    print(
        "of an agent:  ", f"{len(agent.list_services())} services of the store are seen,", end=" "
    )
    agent.add_service(NOTEBOOK)
    with agent.with_session("block") as s:
        print("one of its own counts", number(s.use_tool("notebook_count")))

    asyncio.run(in_async_code(store))


async def in_async_code(store: MCPStore) -> None:
    context = store.for_store()
    async with context.with_session_async("tasks") as s:
        await s.bind_service_async("notebook")
        found = await asyncio.gather(*(s.use_tool_async("count") for _ in range(5)))
        print("in async code:", *sorted(map(number, found)))


if __name__ == "__main__":
    main()
