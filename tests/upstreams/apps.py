"""A server with the page of an MCP App, and with a resource whose changes clients can follow.

Stdio only: `python apps.py [--page FILE] [--log FILE]`, in the 2025 era. `write` changes the resource and tells its
subscribers, `add` adds a resource. `--log` gets a line for each subscription.
"""

from __future__ import annotations

import sys

from quick import JSON, TYPE_CHECKING, Quick, Refused, option, text, tool

if TYPE_CHECKING:
    from typing import Any

MIME = "text/html;profile=mcp-app"
VALUE = "apps://value"
PAGE = "ui://apps/page.html"


class Apps(Quick):
    def __init__(self, log: str | None, page: str | None) -> None:
        super().__init__(log, "legacy")
        self.page = page
        self.followed: set[str] = set()
        self.value = ""
        self.added: list[str] = []
        shown: JSON = {"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE, "more": 1}
        self.tools += [
            {**tool("show"), "_meta": shown},
            tool("write", {"value": {"type": "string"}}),
            tool("add", {"uri": {"type": "string"}}),
        ]

    def request(self, method: str, params: JSON, request_id: Any, modern: bool) -> JSON:
        uri = str(params.get("uri"))
        if method == "resources/list":
            uris = [PAGE, VALUE, *self.added]
            return {"resources": [{"uri": each, "name": each} for each in uris]}
        if method == "resources/templates/list":
            return {"resourceTemplates": []}
        if method == "resources/read":
            if uri not in {PAGE, VALUE, *self.added}:
                raise Refused(-32602, f"Unknown resource: {uri}")
            return {"contents": [{"uri": uri, "text": self.text_of(uri)}]}
        if method in ("resources/subscribe", "resources/unsubscribe"):
            change = self.followed.add if method == "resources/subscribe" else self.followed.discard
            change(uri)
            self.record({"name": method, "arguments": {"uri": uri}})
            return {}
        return super().request(method, params, request_id, modern)

    def initialize(self, params: JSON) -> JSON:
        result = super().initialize(params)
        result["capabilities"]["resources"] = {"subscribe": True, "listChanged": True}
        result["capabilities"]["extensions"] = {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME]}}
        return result

    def tool_show(self, *_: object) -> JSON:
        block: JSON = {"type": "resource", "resource": {"uri": PAGE, "mimeType": MIME, "text": ""}}
        return {"content": [block], "_meta": {"ui": {"resourceUri": PAGE}}}

    def tool_write(self, values: JSON, *_: object) -> JSON:
        self.value = str(values.get("value"))
        if VALUE in self.followed:
            self.tell("notifications/resources/updated", {"uri": VALUE})
        return text("written")

    def tool_add(self, values: JSON, *_: object) -> JSON:
        self.added.append(str(values["uri"]))
        self.tell("notifications/resources/list_changed", {})
        return text("added")

    def text_of(self, uri: str) -> str:
        if uri != PAGE or self.page is None:
            return self.value
        with open(self.page) as page:
            return page.read()

    def tell(self, method: str, params: JSON) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})


if __name__ == "__main__":
    arguments = sys.argv[1:]
    Apps(option(arguments, "--log"), option(arguments, "--page")).run()
