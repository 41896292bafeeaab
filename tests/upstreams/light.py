"""The server of quick.py for measurements of calls per second: it answers `inc` with a fifth of the work."""

from __future__ import annotations

import json
import os
import sys

from quick import JSON, Quick

ANSWER = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%d"}],'
    b'"structuredContent":{"count":%d}}}\n'
)


class Light(Quick):
    def run(self) -> None:
        for line in sys.stdin.buffer:
            message: JSON = json.loads(line)
            if message.get("method") == "tools/call" and message["params"]["name"] == "inc":
                self.count += 1
                os.write(1, ANSWER % (message["id"], self.count, self.count))
            elif "method" in message:
                self.handle(message)


if __name__ == "__main__":
    Light(era="legacy").run()
