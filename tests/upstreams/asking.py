"""The quick server with everything that goes the other way: questions, log messages, a growing list, resources, prompts.

Stdio only: `python asking.py [--era modern|legacy|both] [--log FILE] [--long]`, the last to mark tools as long. In the
2026-07-28 era questions and log messages follow that revision: an `input_required` result, and messages only for a request
that asked for them.
"""

from __future__ import annotations

import json
import sys
import threading

from quick import JSON, TYPE_CHECKING, VERSION_KEY, Quick, Refused, option, text, tool

if TYPE_CHECKING:
    from typing import Any

LEVEL_KEY = "io.modelcontextprotocol/logLevel"
QUESTION: JSON = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "What is the answer?",
        "requestedSchema": {
            "type": "object",
            "properties": {"answer": {"type": "string"}},
            "required": ["answer"],
        },
    },
}
SAMPLE: JSON = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Say something."}}],
        "maxTokens": 64,
    },
}
COUNTED: JSON = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}
ROOTS: JSON = {"method": "roots/list", "params": {}}


class Asking(Quick):
    def __init__(self, log: str | None, era: str) -> None:
        super().__init__(log, era)
        self.level = "own"
        self.answers: dict[Any, JSON] = {}
        self.answered = threading.Condition()
        self.asked = 0
        self.tools += [
            tool("ask"),
            tool("ask_twice"),
            tool("sample"),
            tool("roots"),
            tool("log", {"level": {"type": "string"}, "text": {"type": "string"}}),
            tool("grow", {"name": {"type": "string"}, "gone": {"type": "boolean"}}),
            tool("describe", {"name": {"type": "string"}, "description": {"type": "string"}}),
            tool("same"),
            tool("shaped", {"value": {}}),
            tool("refuse"),
            tool("link"),
            {**tool("open_inc"), "outputSchema": COUNTED},
            {**tool("closed_inc"), "outputSchema": {**COUNTED, "additionalProperties": False}},
        ]

    # Messages.

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message: JSON = json.loads(line)
            if "method" in message:
                self.handle(message)
                continue
            with self.answered:
                self.answers[message["id"]] = message
                self.answered.notify_all()

    def handle(self, message: JSON) -> None:
        # Each request has a thread, since a tool may wait for an answer that comes over the same pipe.
        if "id" not in message or message["method"] in {"initialize", "server/discover"}:
            super().handle(message)
            return
        params: JSON = message.get("params") or {}
        self.cancelled[message["id"]] = threading.Event()
        threading.Thread(target=self.answer, args=(message, params), daemon=True).start()

    def request(self, method: str, params: JSON, request_id: Any, modern: bool) -> JSON:
        cached: JSON = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
        if method == "resources/list":
            value = {"uri": "quick://value", "name": "value", "mimeType": "text/plain"}
            return {"resources": [value], **cached}
        if method == "resources/templates/list":
            return {"resourceTemplates": [], **cached}
        if method == "resources/read" and params["uri"] == "quick://asked":
            question = self._question(QUESTION, params)
            if "inputRequests" in question:
                return question
            words = question["content"][0]["text"]
            return {"contents": [{"uri": params["uri"], "text": words}], **cached}
        if method == "resources/read":
            if params["uri"] != "quick://value":
                uri = params["uri"]
                raise Refused(-32602, f"Unknown resource: {uri}", {"uri": uri})
            return {"contents": [{"uri": params["uri"], "text": str(self.count)}], **cached}
        if method == "prompts/list":
            report = {"name": "report", "arguments": [{"name": "tone", "required": False}]}
            return {"prompts": [report, {"name": "quiz"}], **cached}
        if method == "prompts/get" and params["name"] == "quiz":
            question = self._question(QUESTION, params)
            if "inputRequests" in question:
                return question
            return {"messages": [{"role": "user", "content": question["content"][0]}]}
        if method == "prompts/get":
            values: JSON = params.get("arguments") or {}
            tone = values.get("tone", "plain")
            words = {"type": "text", "text": f"Report {self.count} in a {tone} tone."}
            return {"messages": [{"role": "user", "content": words}]}
        if method == "logging/setLevel":
            self.level = params["level"]
            return {}
        result = super().request(method, params, request_id, modern)
        if method in {"initialize", "server/discover"}:
            result["capabilities"] = {
                "tools": {"listChanged": True},
                "resources": {},
                "prompts": {},
                "logging": {},
            }
        return result

    def ask(self, question: JSON) -> JSON:
        """Ask a legacy client a question and wait for its answer."""
        with self.answered:
            self.asked += 1
            number = f"question-{self.asked}"
        self.write({"jsonrpc": "2.0", "id": number, **question})
        with self.answered:
            self.answered.wait_for(lambda: number in self.answers)
            return self.answers.pop(number)

    # Tools.

    def _question(self, question: JSON, params: JSON) -> JSON:
        if VERSION_KEY not in (params.get("_meta") or {}):
            words = self.ask(question)
            return text(json.dumps(words.get("result", words.get("error"))))
        if params.get("inputResponses") is None:
            request: JSON = {"question": question}
            return {
                "resultType": "input_required",
                "inputRequests": request,
                "requestState": "asked",
            }
        return text(f"{json.dumps(params['inputResponses']['question'])}")

    def tool_hold(self, arguments: JSON, *more: Any) -> JSON:
        """Wait for the gate, and then ask if the arguments say so; of a legacy client only."""
        held = super().tool_hold(arguments, *more)
        return self._question(QUESTION, more[0]) if arguments.get("asks") else held

    def tool_ask(self, _given: JSON, params: JSON, _: Any) -> JSON:
        return self._question(QUESTION, params)

    def tool_ask_twice(self, _given: JSON, params: JSON, _: Any) -> JSON:
        if VERSION_KEY not in (params.get("_meta") or {}):
            first, second = self.ask(QUESTION), self.ask(QUESTION)
            return text(json.dumps([first.get("result"), second.get("result")]))
        state = params.get("requestState")
        if state is None or state == "once":
            return {
                "resultType": "input_required",
                "inputRequests": {f"q{state}": QUESTION},
                "requestState": "twice" if state else "once",
            }
        return text(f"{state}: {json.dumps(params['inputResponses'])}")

    def tool_sample(self, _given: JSON, params: JSON, _: Any) -> JSON:
        return self._question(SAMPLE, params)

    def tool_roots(self, _given: JSON, params: JSON, _: Any) -> JSON:
        return self._question(ROOTS, params)

    def tool_log(self, values: JSON, params: JSON, _: Any) -> JSON:
        meta: JSON = params.get("_meta") or {}
        if VERSION_KEY not in meta or LEVEL_KEY in meta:
            message = {
                "level": values.get("level", "info"),
                "logger": "asking",
                "data": values["text"],
            }
            self.write({"jsonrpc": "2.0", "method": "notifications/message", "params": message})
        return text(self.level)

    def tool_grow(self, values: JSON, *_: object) -> JSON:
        name = str(values.get("name", "extra"))
        if values.get("gone"):
            self.tools = [known for known in self.tools if known["name"] != name]
        else:
            self.tools.append(tool(name))
        return self.tool_same()

    def tool_describe(self, values: JSON, *_: object) -> JSON:
        self.tools = [
            {**known, "description": values["description"]}
            if known["name"] == values["name"]
            else known
            for known in self.tools
        ]
        return self.tool_same()

    def tool_same(self, *_: object) -> JSON:
        self.write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("told")

    def tool_own_session(self, values: JSON, *_: object) -> JSON:
        return text(str(values["session_id"]), values)

    def tool_shaped(self, values: JSON, *_: object) -> JSON:
        result = text(values.get("text", "shaped"))
        return {**result, **({"structuredContent": values["value"]} if "value" in values else {})}

    def tool_refuse(self, *_: object) -> JSON:
        raise Refused(-32077, "not today", {"why": "it is late"})

    def tool_open_inc(self, *_: object) -> JSON:
        self.tool_inc({})
        return text(str(self.count), {"count": self.count})

    def tool_closed_inc(self, *_: object) -> JSON:
        return self.tool_open_inc()

    def tool_link(self, *_: object) -> JSON:
        link = {"type": "resource_link", "uri": "quick://value", "name": "value"}
        return {"content": [link]}


if __name__ == "__main__":
    arguments = sys.argv[1:]
    server = Asking(option(arguments, "--log"), option(arguments, "--era") or "both")
    if "--own-session" in arguments:
        own_arguments = {"session_id": {"type": "string"}}
        server.tools.append(tool("own_session", own_arguments, idempotentHint=True))
    if "--long" in arguments:
        for described in server.tools:
            if described["name"] in {"hold", "hang", "slow"}:
                described["execution"] = {"taskSupport": "optional"}
    server.run()
