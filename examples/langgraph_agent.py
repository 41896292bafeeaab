"""An agent of LangGraph whose browser stays open between its tool calls. It ends with a picture of the page it worked on.

    uv run python examples/langgraph_agent.py [FILE.png]

The model is a script, so this runs offline and without a key: put a chat model of yours in its place. Statehold is embedded
in this process, and the shop is a page on this machine.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from statehold.client import connect

PAGE = """<title>Shop</title><h1>Cart: <span id=n>0</span></h1>
<button onclick="n.textContent = Number(n.textContent) + 1">Add tea</button>"""


class Shop(BaseHTTPRequestHandler):
    """A page that keeps its cart in memory: open it anew and the cart is empty."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def shop() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def scripted(url: str) -> GenericFakeChatModel:
    """Return a "model" that opens the page, puts two things into the cart and takes a picture."""
    add = ("browser_click", {"target": "button", "element": "Add tea"})
    steps: list[tuple[str, dict[str, Any]]] = [
        ("browser_navigate", {"url": url}),
        add,
        add,
        ("browser_take_screenshot", {"type": "png"}),
    ]
    turns = [
        AIMessage("", tool_calls=[{"id": f"step-{n}", "name": tool, "args": arguments}])
        for n, (tool, arguments) in enumerate(steps)
    ]
    return GenericFakeChatModel(messages=iter([*turns, AIMessage("There are two in the cart.")]))


def agent(model: Any, tools: Sequence[BaseTool]) -> Any:
    """Return the usual loop: the model, then the tools it asks for, until it asks for none."""

    async def think(state: MessagesState) -> dict[str, Any]:
        # A real model is given the tools here: `model.bind_tools(tools)`.
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(tools))
    graph.set_entry_point("model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


async def run(url: str) -> list[bytes]:
    """Let the agent work, and return the pictures it took."""
    async with connect() as client, client.session("shopper", services=["browser"]) as s:
        tools = await s.langchain_tools()
        assert not any("session_id" in tool.args for tool in tools)
        asked = {"messages": [("user", "Put two teas into the cart and show me.")]}
        done = await agent(scripted(url), tools).ainvoke(asked)
        told = [message for message in done["messages"] if isinstance(message, ToolMessage)]
        for message in told:
            print(f"{message.name}: {message.status}")
        cart = await s.call(
            "browser_evaluate", function="() => document.title + ': ' + n.textContent"
        )
        print(cart.text.splitlines()[1])
        print(done["messages"][-1].content)
    images = [image for message in told for image in message.artifact["images"]]
    return [base64.b64decode(image["base64"]) for image in images]


with shop() as url:
    [picture] = asyncio.run(run(url))
Path(sys.argv[1] if len(sys.argv) > 1 else "cart.png").write_bytes(picture)
