"""A server for tests of recipes: it keeps one value, writes it to a file, returns it, and takes it back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from quick import JSON, Quick, text, tool


class Keeper(Quick):
    def __init__(self) -> None:
        super().__init__(None)
        self.value: Any = None
        names = ("put", "take", "write", "read", "tell", "surroundings", "refuse", "end", "link")
        names += ("pipe",)
        self.tools += [tool(name) for name in names]

    def tool_put(self, arguments: JSON, *_: object) -> JSON:
        self.value = arguments["value"]
        return text(f"put {json.dumps(self.value)}")

    def tool_take(self, *_: object) -> JSON:
        return text(json.dumps(self.value))

    def tool_write(self, arguments: JSON, *_: object) -> JSON:
        path = Path(arguments["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.value))
        return text("written")

    def tool_link(self, arguments: JSON, *_: object) -> JSON:
        os.symlink(arguments["target"], arguments["path"])
        return text("linked")

    def tool_pipe(self, arguments: JSON, *_: object) -> JSON:
        os.mkfifo(arguments["path"])
        return text("a pipe")

    def tool_read(self, arguments: JSON, *_: object) -> JSON:
        self.value = json.loads(Path(arguments["path"]).read_text())
        return text("read")

    def tool_tell(self, *_: object) -> JSON:
        return text(f"The value is <{json.dumps(self.value)}>.", {"a/b": [{"value": self.value}]})

    def tool_surroundings(self, *_: object) -> JSON:
        surroundings = {"cwd": os.getcwd(), "args": sys.argv[1:], "env": dict(os.environ)}
        return text("surroundings", surroundings)

    def tool_refuse(self, arguments: JSON, *_: object) -> JSON:
        return {**text(arguments.get("words", "I will not")), "isError": True}

    def tool_end(self, *_: object) -> JSON:
        sys.stderr.write("keeper: the end\n")
        sys.stderr.flush()
        os._exit(9)


if __name__ == "__main__":
    Keeper().run()
