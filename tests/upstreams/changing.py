"""An MCP server whose tools, prompts and pages are those in a file, at each request. `--file FILE`.

A call of `change` announces that its lists have changed; each other one gets the `result` in the file, or its own
arguments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

JSON = dict[str, Any]


def send(message: JSON) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: JSON, offered: JSON) -> JSON:
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        changes = {"listChanged": True}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": changes, "prompts": changes, "resources": {}},
            "serverInfo": {"name": "changing", "version": "1"},
        }
    if method == "tools/call":
        if params["name"] == "change":
            send({"method": "notifications/tools/list_changed"})
            send({"method": "notifications/prompts/list_changed"})
        elif "result" in offered:
            return offered["result"]
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments", {}))}]}
    if method == "resources/read":
        page = {"uri": params["uri"], "mimeType": "text/html;profile=mcp-app"}
        return {"contents": [{**page, "text": offered["page"], "_meta": offered.get("meta", {})}]}
    lists: dict[str, JSON] = {
        "tools/list": {"tools": offered["tools"]},
        "prompts/list": {"prompts": offered.get("prompts", [])},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": offered.get("templates", [])},
    }
    return lists.get(method, {})


file = Path(sys.argv[sys.argv.index("--file") + 1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        send({"id": message["id"], "result": answer(message, json.loads(file.read_text()))})
