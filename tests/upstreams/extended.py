"""An SDK server that declares extensions, and what it serves depends on those of its client.

`python extended.py [--transport stdio|http] [--port N] [--era E] [--stateless] [--mime TYPE]`. `show` has a page only for
clients that declare `ui`. `needs` refuses a client with -32021 unless it declares the `capabilities` of its arguments.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from serving import arguments, run

UI = "io.modelcontextprotocol/ui"
PAGE = "ui://extended/page.html"
Context = ServerRequestContext[Any, Any]


def declared(ctx: Context) -> dict[str, Any]:
    capabilities = ctx.session.client_capabilities
    if capabilities is None:
        return {}
    return capabilities.model_dump(by_alias=True, exclude_none=True, mode="json")


async def list_tools(ctx: Context, _: object) -> types.ListToolsResult:
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    settings: dict[str, Any] = declared(ctx).get("extensions", {}).get(UI, {})
    meta = {"ui": {"resourceUri": PAGE}} if types_of(settings) else None
    return types.ListToolsResult(
        tools=[
            types.Tool(name="show", input_schema=nothing, _meta=meta),
            types.Tool(name="needs", input_schema=nothing),
        ]
    )


def types_of(settings: dict[str, Any]) -> bool:
    return "text/html;profile=mcp-app" in settings.get("mimeTypes", ())


async def call(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "needs":
        required: dict[str, Any] = (params.arguments or {})["capabilities"]
        given = declared(ctx)
        extensions = required.get("extensions", {}).keys() - given.get("extensions", {}).keys()
        if extensions or required.keys() - {"extensions"} - given.keys():
            data = {"requiredCapabilities": required}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing capability", data)
    return types.CallToolResult(content=[types.TextContent(text="done")])


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--mime", default="text/html;profile=mcp-app")
    options = parser.parse_args()
    server: Server[Any] = Server("extended", on_list_tools=list_tools, on_call_tool=call)
    server.extensions = {
        UI: {"mimeTypes": [options.mime], "flag": True},
        "example.org/skills": {"mime": options.mime},
        "io.modelcontextprotocol/tasks": {},
    }
    run(server, options, dict)


if __name__ == "__main__":
    main()
