"""A server with skills (SEP-2640) and with a method of a vendor, and with an extension that it begins to declare later.

Stdio only: `python skilled.py [--era modern|legacy|both] [--log FILE] [--text TEXT] [--more FILE] [--refuse METHOD]
[--gate FIFO]`. It has the text in its files; each read waits for a writer of the pipe of `--gate`. It declares one extension
more once the file of `--more` exists; `announce` tells of a changed list. `--log` gets a line for each request.
"""

from __future__ import annotations

import hashlib
import os
import sys

from quick import JSON, TYPE_CHECKING, Quick, Refused, option, text, tool

if TYPE_CHECKING:
    from typing import Any

REFUNDS = "skill://refunds/SKILL.md"
GITHUB = "github://o/r/refunds/SKILL.md"
HIDDEN = "skill://hidden/SKILL.md"
"""A skill that no list has, without digests."""
LARGE = "skill://large/SKILL.md"
HUGE = "skill://huge/SKILL.md"
"""Skills with one file too many, and with one byte too many."""


class Skilled(Quick):
    def __init__(self, arguments: list[str]) -> None:
        super().__init__(option(arguments, "--log"), option(arguments, "--era") or "both")
        self.more = option(arguments, "--more")
        self.refused = option(arguments, "--refuse")
        self.gate = option(arguments, "--gate")
        self.tools.append(tool("announce"))
        words = option(arguments, "--text") or ""
        self.files: dict[str, str] = {
            uri: f"---\nname: {uri.split('/')[-2]}\ndescription: Words {words}\n---\n\nUse `inc`.\n"
            for uri in (REFUNDS, GITHUB, HIDDEN)
        }
        self.files["skill://refunds/examples/mail.md"] = f"A mail {words}"
        self.files["github://o/r/secret.txt"] = "no file of a skill"

    def entry(self, uri: str) -> JSON:
        name = uri.split("/")[-2]
        folder = uri.removesuffix("SKILL.md")
        one_file: JSON = {"uri": uri, "digest": "sha256:" + "0" * 64, "size": 1}
        files: Any = [
            {
                "uri": each,
                "digest": f"sha256:{hashlib.sha256(content.encode()).hexdigest()}",
                "size": len(content.encode()),
            }
            for each, content in self.files.items()
            if each.startswith(folder)
        ]
        if uri == HIDDEN:
            files = "dynamic"
        elif uri == LARGE:
            files = [one_file] * 513
        elif uri == HUGE:
            files = [{**one_file, "size": 16 * 2**20 + 1}]
        described = self.files.get(uri, "---\n\ndescription: Words").split("description: ")[1]
        front: JSON = {"name": name, "description": described.split("\n")[0]}
        return {"uri": uri, "frontmatter": front, "resources": files}

    def capabilities(self) -> JSON:
        extensions: JSON = {
            "io.modelcontextprotocol/skills": {"directoryRead": True},
            "io.modelcontextprotocol/tasks": {},
            "example.org/vendor": {"level": 2},
        }
        if self.more is not None and os.path.exists(self.more):
            extensions["example.org/more"] = {}
        return {
            "tools": {"listChanged": True},
            "resources": {},
            "events": {},
            "extensions": extensions,
        }

    def initialize(self, params: JSON) -> JSON:
        return {**super().initialize(params), "capabilities": self.capabilities()}

    def request(self, method: str, params: JSON, request_id: Any, modern: bool) -> JSON:
        uri = str(params.get("uri"))
        if method != "tools/call":
            self.record({"name": method, "arguments": uri})
        if method == self.refused:
            raise Refused(-32603, "Refused")
        if method == "server/discover" and self.era != "legacy":
            found = super().request(method, params, request_id, modern)
            return {**found, "capabilities": self.capabilities()}
        if method == "skills/list" and "cursor" not in params:
            skills = [self.entry(REFUNDS), self.entry(LARGE), {"uri": "skill://odd/SKILL.md"}]
            return {"skills": skills, "nextCursor": "2", "ttlMs": 60_000, "cacheScope": "public"}
        if method == "skills/list":
            skills = [self.entry(GITHUB), self.entry(HUGE), {**self.entry(GITHUB), "_meta": "x"}]
            return {"skills": skills, "ttlMs": 60_000, "cacheScope": "public"}
        if method == "skills/get" and uri in (REFUNDS, GITHUB, HIDDEN, LARGE):
            return {"skill": self.entry(uri), "ttlMs": 5000, "cacheScope": "public"}
        if method in ("skills/get", "resources/read") and uri not in self.files:
            raise Refused(-32602, f"Nothing is served at {uri}", {"uri": uri})
        if method == "resources/read" and self.gate is not None:
            with open(self.gate) as gate:
                gate.read()
        if method == "resources/read":
            return {
                "contents": [{"uri": uri, "mimeType": "text/markdown", "text": self.files[uri]}]
            }
        if method == "example/count":
            self.count += 1
            given = {key: value for key, value in params.items() if key != "_meta"}
            meta = {"example.org/kept": 1}
            return {"count": self.count, "given": given, "_meta": meta, "cacheScope": "public"}
        if method == "example/needs":
            data: JSON = {"requiredCapabilities": {"extensions": {"example.org/other": {}}}}
            raise Refused(-32021, "Missing capability", data)
        return super().request(method, params, request_id, modern)

    def tool_announce(self, *_: object) -> JSON:
        self.write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("announced")


if __name__ == "__main__":
    Skilled(sys.argv[1:]).run()
