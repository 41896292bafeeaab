"""MCP servers that misbehave: `python bad.py MODE [ARGUMENT ...] [--log FILE]`, always over stdio.

hang-at-start                  reads nothing and says nothing
slow-start SECONDS             sleeps, then serves
exit-at-start                  says why on stderr and exits with 7
flood-stdout [bytes|lines] [MIB]   the tool `flood` writes junk (1 GiB) to stdout, without a newline or in lines
flood-at-start [bytes|lines] [MIB] the same before the first answer
flood-stderr [MIB]             writes 1 GiB to stderr while it serves; the tool `flood` does it again
invalid-schema                 lists tools with broken schemas around a good one
odd-tools                      lists valid tools that few servers have: odd names and odd patterns
invalid-lists [FILE]           lists broken prompts and resources around good ones; exits with 7 when FILE exists
lying                          one tool for each lie, see Lying
stubborn                       ignores EOF and SIGTERM, and so does its child; the tool `family` tells their pids
dies-on-unknown-first-message  exits with 5 unless the first message is `initialize`
asked BEHAVIOUR [FILE]         an old server that `ignores` server/discover, `hangs` at it, answers `nonsense` or `junk`, is
                               `confused` by it or `refuses` it; --log gets each method, FILE has the version
pinned SECONDS                 starts slowly; takes two introductions, and speaks the older era after `initialize`
crash-loop                     starts well, lists its tools, and exits with 6 at a call or shortly after
holds-port PORT                listens on a port, and ends with an error if it is in use
kills-holder FILE              kills the process whose pid the file holds, writes its own, and serves
mute                           starts well and answers no call
bom                            begins its first message with a byte order mark
muttering [text]               answers each call with a text that is no message
prompting [text]               prints a text that ends with a blank before each answer, in the same line
glued                          prints text without a newline before each answer and after each message
talks-at-start [STDERR]        prints a banner and half a line to stdout, and STDERR, and answers nothing
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from quick import JSON, Quick, Refused, option, text, tool

STUBBORN_CHILD = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "signal.signal(signal.SIGHUP, signal.SIG_IGN); print('ready', flush=True)\n"
    "while True: time.sleep(60)"
)


def flood(descriptor: int, kind: str, mib: int) -> None:
    """Write junk; end early when the reader is gone."""
    piece = (b"j" * 1023 + b"\n" if kind == "lines" else b"j" * 1024) * 1024
    try:
        for _ in range(mib):
            left = memoryview(piece)
            while left:
                left = left[os.write(descriptor, left) :]
    except OSError:
        return


class FloodsStdout(Quick):
    """Floods in the middle of a call, and answers it afterwards."""

    def __init__(self, kind: str, mib: int, log: str | None) -> None:
        super().__init__(log)
        self.kind = kind
        self.mib = mib
        self.tools.append(tool("flood"))

    def tool_flood(self, *_: object) -> JSON:
        with self.writing:
            flood(1, self.kind, self.mib)
        return text("flooded")


class FloodsStderr(Quick):
    def __init__(self, mib: int, log: str | None) -> None:
        super().__init__(log)
        self.mib = mib
        self.tools.append(tool("flood"))
        threading.Thread(target=flood, args=(2, "lines", mib), daemon=True).start()

    def tool_flood(self, *_: object) -> JSON:
        flood(2, "bytes", self.mib)
        return text("flooded")


class InvalidSchema(Quick):
    def __init__(self, log: str | None) -> None:
        super().__init__(log)
        good = self.tools[:2]
        self.tools = [
            {"name": "no_schema", "description": "has no inputSchema"},
            {"name": "array_schema", "inputSchema": {"type": "array"}},
            {"name": "wrong_type", "inputSchema": {"type": 42, "properties": "none"}},
            {"name": "empty_schema", "inputSchema": {}},
            *good,
            {"name": "bad_properties", "inputSchema": {"type": "object", "properties": ["a"]}},
            {**tool("bad_hints"), "annotations": {"readOnlyHint": "perhaps"}},
            {"description": "has no name", "inputSchema": {"type": "object"}},
            "not even an object",  # pyright: ignore[reportAttributeAccessIssue]
        ]


PATTERNS = {
    "class": r"^[\w-.]+$",
    "property": r"^\p{L}+$",
    "group": r"(?<year>\d{4})",
    "anything": "[^]",
    "emoji": r"^\u{1F600}$",
}
ODD_NAMES = ("get weather", "get:weather", "天气", "naïve", "long " * 40)


class OddTools(Quick):
    """Each tool answers with the name under which it was called."""

    def __init__(self, log: str | None) -> None:
        super().__init__(log)
        properties: JSON = {
            name: {"type": "string", "description": name, "pattern": pattern}
            for name, pattern in PATTERNS.items()
        }
        properties["nested"] = {"type": "object", "properties": {**properties}}
        schema = {"type": "object", "properties": properties, "required": ["class"]}
        self.tools = [
            {"name": "patterns", "inputSchema": schema, "outputSchema": schema},
            *(tool(name) for name in ODD_NAMES),
            *self.tools,
        ]

    def call(self, name: str, arguments: JSON, params: JSON, request_id: Any) -> JSON:
        if hasattr(self, f"tool_{name}"):
            return super().call(name, arguments, params, request_id)
        return text(name, {"class": "a.b", "name": name, "arguments": arguments})


class InvalidLists(Quick):
    def request(self, method: str, params: JSON, request_id: Any, modern: bool) -> JSON:
        if method == "prompts/list":
            two = {"name": "two", "arguments": [{"name": "session_id"}]}
            prompts = ({"name": "one"}, {"name": "bad", "arguments": "nope"}, two)
            return {"prompts": [*prompts, {"name": "bad", "arguments": [{"name": 5}]}, "loose"]}
        if method == "prompts/get":
            return {"description": params["arguments"]["session_id"], "messages": []}
        if method == "resources/list":
            good = {"uri": "x://a", "name": "a"}
            return {"resources": [{"name": "no uri"}, "loose", good, {"uri": "x://b"}]}
        result = super().request(method, params, request_id, modern)
        if method in {"initialize", "server/discover"}:
            result["capabilities"] = {"tools": {}, "resources": {}, "prompts": {}}
        return result


class Lying(Quick):
    """Each tool tells one lie; `get` is correct, to show whether the connection still works."""

    LIES = (
        "no_content",
        "null_content",
        "text_result",
        "unknown_block",
        "broken_block",
        "list_structured",
        "wrong_id",
        "twice",
        "stray_progress",
        "unknown_notification",
        "not_json",
        "too_deep",
        "too_long_a_number",
        "unasked_request",
    )

    def __init__(self, log: str | None) -> None:
        super().__init__(log)
        self.tools += [tool(name) for name in self.LIES]

    def tool_no_content(self, *_: object) -> JSON:
        return {}

    def tool_null_content(self, *_: object) -> JSON:
        return {"content": None}

    def tool_text_result(self, _given: JSON, _params: JSON, request_id: Any) -> JSON:
        self.write({"jsonrpc": "2.0", "id": request_id, "result": "just a string"})
        return text("too late")

    def tool_unknown_block(self, *_: object) -> JSON:
        return {
            "content": [{"type": "hologram", "data": "?"}, {"type": "text", "text": "and text"}]
        }

    def tool_broken_block(self, *_: object) -> JSON:
        return {"content": [{"type": "text"}, {"type": "image", "data": 5}, "loose"]}

    def tool_list_structured(self, *_: object) -> JSON:
        return {"content": [], "structuredContent": [1, 2, 3]}

    def tool_wrong_id(self, *_: object) -> JSON:
        self.write({"jsonrpc": "2.0", "id": "never-sent", "result": text("for nobody")})
        return text("for you")

    def tool_twice(self, _given: JSON, _params: JSON, request_id: Any) -> JSON:
        self.write({"jsonrpc": "2.0", "id": request_id, "result": text("first")})
        return text("second")

    def tool_stray_progress(self, *_: object) -> JSON:
        progress: JSON = {"progressToken": "never-given", "progress": 1, "total": 2}
        self.write({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        return text("done")

    def tool_unknown_notification(self, *_: object) -> JSON:
        self.write({"jsonrpc": "2.0", "method": "notifications/made_up", "params": {"a": 1}})
        return text("done")

    def tool_not_json(self, *_: object) -> JSON:
        with self.writing:
            os.write(1, b'Listening on port 3000\n{"jsonrpc": "2.0", "id"\n[]\n42\n\xff\xfe\n\n')
        return text("done")

    def tool_too_deep(self, _given: JSON, _params: JSON, request_id: Any) -> JSON:
        return self.unreadable(request_id, "[" * 5000 + "]" * 5000)

    def tool_too_long_a_number(self, _given: JSON, _params: JSON, request_id: Any) -> JSON:
        return self.unreadable(request_id, "9" * 5000)

    def unreadable(self, request_id: Any, value: str) -> JSON:
        """Write an answer that Python cannot read; the one returned comes too late then."""
        line = (
            f'{{"jsonrpc": "2.0", "id": {request_id}, "result": {{"content": [], "x": {value}}}}}\n'
        )
        with self.writing:
            os.write(1, line.encode())
        return text("too late")

    def tool_unasked_request(self, *_: object) -> JSON:
        params: JSON = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        self.write({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params})
        return text("done")


class Stubborn(Quick):
    def __init__(self, log: str | None) -> None:
        super().__init__(log)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        child = subprocess.Popen(
            [sys.executable, "-c", STUBBORN_CHILD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        self.children.append(child)
        self.tools.append(tool("family"))

    def tool_family(self, *_: object) -> JSON:
        return text("family", {"pid": os.getpid(), "child": self.children[0].pid})

    def run(self) -> None:
        super().run()
        while True:
            time.sleep(60)


class DiesOnUnknownFirstMessage(Quick):
    def arrived(self, message: JSON) -> None:
        if self.seen == 1 and message.get("method") != "initialize":
            sys.stderr.write("bad: expected initialize\n")
            sys.stderr.flush()
            os._exit(5)


class Asked(Quick):
    def __init__(self, behaviour: str, version: str | None, log: str | None) -> None:
        super().__init__(log, "legacy")
        self.behaviour = behaviour
        self.version = version
        self.is_confused = False

    def arrived(self, message: JSON) -> None:
        self.record({"name": message.get("method")})

    def handle(self, message: JSON) -> None:
        if message["method"] != "server/discover":
            super().handle(message)
        elif self.behaviour == "hangs":
            time.sleep(600)
        elif self.behaviour == "junk":
            with self.writing:
                os.write(1, b"panic: unknown method\n\xff{}\n[1, 2]\n")
        elif self.behaviour == "nonsense":
            self.write(
                {"jsonrpc": "2.0", "id": message["id"], "result": {"supportedVersions": "?"}}
            )
        elif self.behaviour != "ignores":
            self.is_confused = self.behaviour == "confused"
            super().handle(message)

    def initialize(self, params: JSON) -> JSON:
        if self.is_confused:
            raise Refused(-32600, "the first message was not initialize")
        result = super().initialize(params)
        if self.version is not None:
            with open(self.version) as file:
                result["serverInfo"]["version"] = file.read()
        return result


class Pinned(Quick):
    def __init__(self, log: str | None) -> None:
        super().__init__(log)
        self.is_legacy = False

    def request(self, method: str, params: JSON, request_id: Any, modern: bool) -> JSON:
        if method != "server/discover" and modern and self.is_legacy:
            raise Refused(-32600, "this connection speaks the older protocol")
        self.is_legacy = self.is_legacy or method == "initialize"
        return super().request(method, params, request_id, modern)


class CrashLoop(Quick):
    def notified(self, method: str, params: JSON) -> None:
        if method == "notifications/initialized":
            threading.Timer(0.2, self.die).start()

    def call(self, name: str, arguments: JSON, params: JSON, request_id: Any) -> JSON:
        self.die()
        raise Refused(-32603, "unreachable")

    def die(self) -> None:
        sys.stderr.write("bad: crashing again\n")
        sys.stderr.flush()
        os._exit(6)


class Mute(Quick):
    def answer(self, message: JSON, params: JSON) -> None:
        if message["method"] != "tools/call":
            super().answer(message, params)


class ByteOrderMark(Quick):
    def run(self) -> None:
        os.write(1, b"\xef\xbb\xbf")
        super().run()


class Glued(Quick):
    """Its log quotes what it received and sent, as some servers do; not everything that it quotes is true."""

    LOGS = (
        "[proxy] <- ANSWER",
        "{proxy} <- ANSWER",
        "answer=ANSWER",
        "(ANSWER)",
        '{"level": 30, "data": ANSWER, "id": 2}',
        '{"level": 30} ANSWER',
    )

    def arrived(self, message: JSON) -> None:
        os.write(1, f"received {json.dumps(message)} ".encode())

    def write(self, message: JSON) -> None:
        quoted = json.dumps({**message, "result": {"content": [], "tools": []}})
        lines = (
            *(log.replace("ANSWER", quoted) for log in self.LOGS),
            f'{{"id": {message["id"]}}}',
        )
        with self.writing:
            os.write(1, "\n".join(("", *lines, "")).encode())
            if message.get("id") == 1:
                os.write(1, b'{"level": 30, "id": 7}')
            os.write(1, b"\x1b[2KLoading model {0} 100%" + json.dumps(message).encode())
            os.write(1, b" done\n")


class Muttering(Quick):
    """Answers each call with a text that is no message."""

    text = sys.argv[2] if len(sys.argv) > 2 else "Enter the code: "

    def answer(self, message: JSON, params: JSON) -> None:
        if message["method"] != "tools/call":
            super().answer(message, params)
        else:
            os.write(1, self.text.encode().replace(b"NUL", b"\0"))


class Prompting(Quick):
    """Prints a text without a newline before each answer, as `print(text, end=" ")` does."""

    text = sys.argv[2] if len(sys.argv) > 2 else "Loading ... "

    def write(self, message: JSON) -> None:
        with self.writing:
            os.write(1, self.text.encode() + json.dumps(message).encode() + b"\n")


def kill_holder(path: str) -> None:
    """Kill whatever holds a resource, as servers do that need a port for themselves."""
    try:
        with open(path) as file:
            holder = int(file.read())
        with open(f"/proc/{holder}/cmdline", "rb") as cmdline:
            # The pid may belong to another program by now.
            if path.encode() in cmdline.read():
                os.kill(holder, signal.SIGKILL)
    except (OSError, ValueError):
        pass
    with open(path, "w") as file:
        file.write(str(os.getpid()))


def made(mode: str, rest: list[str], log: str | None) -> Quick:
    """Build the server of a mode; some modes end the process here."""
    if mode == "hang-at-start":
        while True:
            time.sleep(60)
    if mode == "slow-start":
        time.sleep(float(rest[0]))
        return Quick(log)
    if mode == "asked":
        return Asked(rest[0], rest[1] if len(rest) > 1 else None, log)
    if mode == "pinned":
        time.sleep(float(rest[0]))
        return Pinned(log)
    if mode == "holds-port":
        listener = socket.create_server(("127.0.0.1", int(rest[0])))
        threading.Thread(target=listener.accept, daemon=True).start()
        return Quick(log)
    if mode == "kills-holder":
        kill_holder(rest[0])
        return Quick(log)
    if mode == "exit-at-start":
        sys.stderr.write("bad: API_KEY is not set\n")
        sys.exit(7)
    if mode == "talks-at-start":
        os.write(1, b"Welcome to the server\nEnter your API key: ")
        os.write(2, " ".join(rest).encode())
        while True:
            time.sleep(60)
    if mode in {"flood-stdout", "flood-at-start"}:
        kind, mib = (rest[0] if rest else "bytes"), int(rest[1]) if len(rest) > 1 else 1024
        if mode == "flood-at-start":
            flood(1, kind, mib)
        return FloodsStdout(kind, mib, log)
    if mode == "flood-stderr":
        return FloodsStderr(int(rest[0]) if rest else 1024, log)
    if mode == "invalid-lists" and rest and os.path.exists(rest[0]):
        sys.exit(7)
    return MODES[mode](log)


MODES: dict[str, Callable[[str | None], Quick]] = {
    "invalid-schema": InvalidSchema,
    "odd-tools": OddTools,
    "invalid-lists": InvalidLists,
    "lying": Lying,
    "stubborn": Stubborn,
    "dies-on-unknown-first-message": DiesOnUnknownFirstMessage,
    "crash-loop": CrashLoop,
    "mute": Mute,
    "bom": ByteOrderMark,
    "glued": Glued,
    "muttering": Muttering,
    "prompting": Prompting,
}


def main() -> None:
    options = sys.argv[1:]
    log = option(options, "--log")
    rest = options[1:] if log is None else options[1 : options.index("--log")]
    made(options[0], rest, log).run()


if __name__ == "__main__":
    main()
