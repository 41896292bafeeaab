"""An SDK server with events that it can be polled for (SEP-3415): each line of a file is a `note`.

`python event_server.py --events FILE [--fresh-ids] [--transport stdio|http] [--port N] [--era E] [--log FILE]`. A cursor is
a number of lines; one beyond the file is refused. With `--fresh-ids` an event has another id in each answer.
`session_closed` has the name of an event of ours, `pushed` offers no polls, and `get` is a tool. `--log` gets a line for
each request about events.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from serving import arguments, run

Context = ServerRequestContext[Any, Any]
TOPIC: dict[str, Any] = {"type": "object", "properties": {"topic": {"type": "string"}}}


class EventParams(types.RequestParams):
    name: Any = None
    arguments: dict[str, Any] | None = None
    cursor: Any = None
    max_events: Any = None


async def list_tools(ctx: Context, _: object) -> types.ListToolsResult:
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    return types.ListToolsResult(tools=[types.Tool(name="get", input_schema=nothing)])


async def call(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text="done")])


class Events:
    def __init__(self, file: Path, log: Path | None, *, fresh_ids: bool) -> None:
        self.file = file
        self.log = log
        self.fresh_ids = fresh_ids

    def record(self, method: str, params: EventParams) -> None:
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(json.dumps([method, params.name, params.cursor]) + "\n")

    async def list(self, ctx: Context, params: EventParams) -> dict[str, Any]:
        self.record("list", params)
        modes = {"note": ["poll", "webhook"], "session_closed": ["poll"], "pushed": ["push"]}
        return {
            "events": [
                {"name": name, "description": name, "delivery": delivery, "inputSchema": TOPIC}
                for name, delivery in modes.items()
            ]
        }

    async def poll(self, ctx: Context, params: EventParams) -> dict[str, Any]:
        self.record("poll", params)
        lines = self.file.read_text().splitlines()
        start = len(lines) if params.cursor is None else int(params.cursor)
        if start > len(lines):
            raise MCPError(types.INVALID_PARAMS, "The cursor is unknown")
        end = min(start + (params.max_events or 50), len(lines))
        topic = str((params.arguments or {}).get("topic", ""))
        return {
            "events": [
                {
                    "eventId": secrets.token_hex(8) if self.fresh_ids else str(number),
                    "name": params.name,
                    "timestamp": "2026-11-30T00:00:00Z",
                    "data": {"text": lines[number]},
                    "cursor": str(number + 1),
                }
                for number in range(start, end)
                if lines[number].startswith(topic)
            ],
            "cursor": str(end),
            "hasMore": end < len(lines),
            "truncated": False,
            "nextPollMs": 100,
        }

    async def subscribe(self, ctx: Context, params: EventParams) -> dict[str, Any]:
        self.record("subscribe", params)
        return {"id": "sub", "refreshBefore": "2099-01-01T00:00:00Z", "cursor": None}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--events", required=True)
    parser.add_argument("--fresh-ids", action="store_true")
    options = parser.parse_args()
    server: Server[Any] = Server("events", on_list_tools=list_tools, on_call_tool=call)
    server.extensions = {"io.modelcontextprotocol/events": {}}
    log = Path(options.log) if options.log else None
    events = Events(Path(options.events), log, fresh_ids=options.fresh_ids)
    for method in ("list", "poll", "subscribe"):
        server.add_request_handler(f"events/{method}", EventParams, getattr(events, method))
    run(server, options, dict)


if __name__ == "__main__":
    main()
