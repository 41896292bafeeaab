"""A stateful MCP server on the real SDK: `python counter.py [--transport stdio|http|sse] [--port N] [--era E] [--log FILE]`.

It counts per process over stdio, per `Mcp-Session-Id` over legacy Streamable HTTP and per connection over SSE. A
2026-07-28 request over HTTP belongs to no connection, so those count per process. Every call is appended to `--log` before
it runs: time, pid, tool, arguments, `_meta`; a call that was cancelled adds a second line with `"event": "cancelled"`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from serving import arguments, run

Arguments: TypeAlias = dict[str, Any]
Answer: TypeAlias = types.CallToolResult | types.InputRequiredResult

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CHANGED: dict[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
    "value": lambda: ResourceUpdated(uri="counter://value"),
}
WANTED_ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}


class State:
    """The counters of one process, or of one SSE connection."""

    def __init__(self) -> None:
        self.counts: dict[str | None, int] = {}
        self.grown: set[str] = set()
        """The lists that have one more entry."""

    def key(self, ctx: Context) -> str | None:
        """The legacy HTTP session the request belongs to; None where process or connection are enough."""
        request = ctx.request
        return None if request is None else request.headers.get("mcp-session-id")


Context: TypeAlias = ServerRequestContext[State, Any]
Tool: TypeAlias = Callable[
    ["Counter", Context, Arguments, types.CallToolRequestParams], Awaitable[Answer]
]


def text(value: str, structured: Any = None, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=value)], structured_content=structured, is_error=is_error
    )


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class Counter:
    """The tools. `log` records the calls that arrived here, for comparison in the tests."""

    def __init__(self, log: str | None) -> None:
        self.log = log
        self.bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self.bus)
        self.children: list[subprocess.Popen[bytes]] = []
        self.log_level = "own"

    def record(self, ctx: Context, params: types.CallToolRequestParams, **more: object) -> None:
        if self.log is None:
            return
        line = {
            "time": time.time(),
            "pid": os.getpid(),
            "tool": params.name,
            "arguments": params.arguments,
            "_meta": (ctx.params or {}).get("_meta"),
            "version": ctx.protocol_version,
            "connection": ctx.lifespan_context.key(ctx),
            **more,
        }
        opened = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, json.dumps(line).encode() + b"\n")
        finally:
            os.close(opened)

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        self.record(ctx, params)
        try:
            return await tool(self, ctx, params.arguments or {}, params)
        except anyio.get_cancelled_exc_class():
            self.record(ctx, params, event="cancelled")
            raise

    def shown(self, ctx: Context) -> types.CallToolResult:
        count = ctx.lifespan_context.counts.get(ctx.lifespan_context.key(ctx), 0)
        return text(str(count), {"count": count, "pid": os.getpid()})

    async def inc(self, ctx: Context, values: Arguments, _: object) -> Answer:
        state = ctx.lifespan_context
        key = state.key(ctx)
        state.counts[key] = state.counts.get(key, 0) + int(values.get("n", 1))
        return self.shown(ctx)

    async def get(self, ctx: Context, _given: Arguments, _: object) -> Answer:
        return self.shown(ctx)

    async def fail(self, _ctx: Context, values: Arguments, _: object) -> Answer:
        return text(str(values.get("message", "it failed")), is_error=True)

    async def slow(self, ctx: Context, values: Arguments, _: object) -> Answer:
        steps = int(values.get("steps", 5))
        for step in range(1, steps + 1):
            await anyio.sleep(float(values["seconds"]) / steps)
            await ctx.session.report_progress(step, steps, f"step {step}")
        return text("done")

    async def crash(self, _ctx: Context, _given: Arguments, _: object) -> Answer:
        sys.stderr.write("counter: crashing as asked\n")
        sys.stderr.flush()
        os._exit(3)

    async def echo(self, ctx: Context, values: Arguments, _: object) -> Answer:
        received = {"arguments": values, "_meta": (ctx.params or {}).get("_meta")}
        return text(json.dumps(received), received)

    async def big(self, _ctx: Context, values: Arguments, _: object) -> Answer:
        return text("x" * 1024 * int(values["kib"]))

    async def image(self, _ctx: Context, values: Arguments, _: object) -> Answer:
        data = PIXEL + "A" * max(0, 1024 * int(values.get("kib", 0)) - len(PIXEL))
        return types.CallToolResult(
            content=[types.ImageContent(data=data[: len(data) // 4 * 4], mime_type="image/png")]
        )

    async def say(self, ctx: Context, values: Arguments, _: object) -> Answer:
        await ctx.session.send_log_message(  # pyright: ignore[reportDeprecated]
            cast(types.LoggingLevel, values.get("level", "info")),
            values["text"],
            logger="counter",
            related_request_id=ctx.request_id,
        )
        return text(self.log_level)

    async def ask(
        self, ctx: Context, values: Arguments, params: types.CallToolRequestParams
    ) -> Answer:
        words = await elicited(ctx, str(values.get("question", "What is the answer?")), params)
        return words if isinstance(words, types.InputRequiredResult) else text(words)

    async def sample(
        self, ctx: Context, values: Arguments, params: types.CallToolRequestParams
    ) -> Answer:
        prompt = types.TextContent(text=str(values.get("prompt", "Say something.")))
        wanted = types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=prompt)], max_tokens=64
        )
        request = types.CreateMessageRequest(params=wanted)
        if is_modern(ctx):
            words = _asked(params, request)
            return words if isinstance(words, types.InputRequiredResult) else text(words)
        from mcp.shared.message import ServerMessageMetadata

        got = await ctx.session.send_request(
            request, types.CreateMessageResult, metadata=ServerMessageMetadata(ctx.request_id)
        )
        return text(f"{got.model}: {got.content.model_dump_json(by_alias=True, exclude_none=True)}")

    async def own_session(self, _ctx: Context, values: Arguments, _: object) -> Answer:
        return text(str(values["session_id"]), values)

    async def spawn(self, _ctx: Context, _given: Arguments, _: object) -> Answer:
        child = subprocess.Popen(  # noqa: ASYNC220
            ["sleep", "3600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.children.append(child)
        return text(str(child.pid), {"pid": child.pid, "parent": os.getpid()})

    async def grow(self, ctx: Context, values: Arguments, _: object) -> Answer:
        what = str(values.get("what", "tools"))
        ctx.lifespan_context.grown.add(what)
        if is_modern(ctx):
            await self.bus.publish(CHANGED[what]())
        elif what == "tools":
            await ctx.session.send_tool_list_changed()
        elif what == "prompts":
            await ctx.session.send_prompt_list_changed()
        else:
            await ctx.session.send_resource_list_changed()
        return text("grown")

    async def hang_up(self, _ctx: Context, _given: Arguments, _: object) -> Answer:
        self.listening.close()
        return text("told nobody")


async def elicited(
    ctx: Context, question: str, params: types.CallToolRequestParams
) -> str | types.InputRequiredResult:
    """Ask the person, in the way of the caller's era."""
    if is_modern(ctx):
        form = types.ElicitRequestFormParams(message=question, requested_schema=WANTED_ANSWER)
        return _asked(params, types.ElicitRequest(params=form))
    got = await ctx.session.elicit_form(question, WANTED_ANSWER, ctx.request_id)
    return f"{got.action}: {json.dumps(got.content)}"


def _asked(params: types.CallToolRequestParams, request: Any) -> str | types.InputRequiredResult:
    """Handle both steps of a 2026-07-28 question: ask it, then answer with the reply."""
    if params.input_responses is None:
        return types.InputRequiredResult(
            input_requests={"question": request}, request_state="asked"
        )
    got = params.input_responses["question"]
    return f"{params.request_state}: {got.model_dump_json(by_alias=True, exclude_none=True)}"


def described(
    name: str,
    about: str,
    schema: Arguments | None = None,
    needed: tuple[str, ...] = (),
    **hints: bool,
) -> types.Tool:
    input_schema: Arguments = {"type": "object", "properties": schema or {}}
    if needed:
        input_schema["required"] = list(needed)
    return types.Tool(
        name=name,
        description=about,
        input_schema=input_schema,
        annotations=types.ToolAnnotations.model_validate(hints) if hints else None,
    )


NUMBER: Arguments = {"type": "number"}
INTEGER: Arguments = {"type": "integer"}
STRING: Arguments = {"type": "string"}
DESCRIBED: list[tuple[Tool, types.Tool]] = [
    (
        Counter.inc,
        described("inc", "Add n and return the count.", {"n": {"type": "integer", "default": 1}}),
    ),
    (Counter.get, described("get", "Return the count.", read_only_hint=True)),
    (Counter.fail, described("fail", "Fail.", {"message": STRING}, idempotent_hint=True)),
    (
        Counter.slow,
        described(
            "slow",
            "Take a while, with progress.",
            {"seconds": NUMBER, "steps": INTEGER},
            ("seconds",),
        ),
    ),
    (Counter.crash, described("crash", "End the process during the call.")),
    (Counter.echo, described("echo", "Return the arguments and _meta.", idempotent_hint=True)),
    (
        Counter.big,
        described("big", "Return a long text.", {"kib": INTEGER}, ("kib",), read_only_hint=True),
    ),
    (Counter.image, described("image", "Return an image.", {"kib": INTEGER}, read_only_hint=True)),
    (Counter.say, described("log", "Log a message.", {"level": STRING, "text": STRING}, ("text",))),
    (Counter.ask, described("ask", "Ask the person.", {"question": STRING})),
    (Counter.sample, described("sample", "Ask the model.", {"prompt": STRING})),
    (
        Counter.own_session,
        described(
            "own_session",
            "Has a session_id of its own.",
            {"session_id": STRING},
            ("session_id",),
            idempotent_hint=True,
        ),
    ),
    (Counter.spawn, described("spawn", "Start a process of its own.")),
    (Counter.grow, described("grow", "Add a tool, a prompt or a resource.", {"what": STRING})),
    (Counter.hang_up, described("hang_up", "End all subscriptions.")),
]
TOOLS: dict[str, Tool] = {tool.name: function for function, tool in DESCRIBED}
EXTRA = described("extra", "Listed after grow.")


async def list_tools(ctx: Context, _: object) -> types.ListToolsResult:
    tools = [tool for _, tool in DESCRIBED]
    grown = "tools" in ctx.lifespan_context.grown
    return types.ListToolsResult(tools=[*tools, EXTRA] if grown else tools)


async def list_resources(_ctx: Context, _: object) -> types.ListResourcesResult:
    value = types.Resource(uri="counter://value", name="value", mime_type="text/plain")
    return types.ListResourcesResult(resources=[value])


async def list_templates(_ctx: Context, _: object) -> types.ListResourceTemplatesResult:
    times = types.ResourceTemplate(uri_template="counter://value/{factor}", name="times")
    return types.ListResourceTemplatesResult(resource_templates=[times])


async def read_resource(
    ctx: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    head, _, factor = params.uri.removeprefix("counter://").partition("/")
    if head != "value":
        raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {params.uri}")
    count = ctx.lifespan_context.counts.get(ctx.lifespan_context.key(ctx), 0)
    value = str(count * int(factor or 1))
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=params.uri, text=value)]
    )


async def list_prompts(ctx: Context, _: object) -> types.ListPromptsResult:
    tone = types.PromptArgument(name="tone", required=False)
    prompts = [types.Prompt(name="report", arguments=[tone])]
    if "prompts" in ctx.lifespan_context.grown:
        prompts.append(types.Prompt(name="extra"))
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    count = ctx.lifespan_context.counts.get(ctx.lifespan_context.key(ctx), 0)
    tone = (params.arguments or {}).get("tone", "plain")
    words = f"Report the count {count} in a {tone} tone."
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=types.TextContent(text=words))]
    )


class CounterServer(Server[State]):
    """Says that its tool list can change; over legacy HTTP the SDK asks for these options without arguments."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **named: Any
    ) -> InitializationOptions:
        changed = NotificationOptions(
            tools_changed=True, prompts_changed=True, resources_changed=True
        )
        options = notification_options or changed
        return super().create_initialization_options(options, *more, **named)


def build(options: argparse.Namespace, state: State) -> CounterServer:
    counter = Counter(options.log)

    @asynccontextmanager
    async def life(_: Server[State]) -> AsyncGenerator[State]:
        yield state

    async def set_level(_ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        counter.log_level = params.level
        return types.EmptyResult()

    server = CounterServer(
        "counter",
        version="1.0",
        lifespan=life,
        instructions="Counts.",
        on_list_tools=list_tools,
        on_call_tool=counter.call,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_subscriptions_listen=counter.listening,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    return server


def main() -> None:
    warnings.filterwarnings("ignore", category=MCPDeprecationWarning)
    options = arguments(__doc__ or "").parse_args()
    process = State()
    run(
        build(options, process),
        options,
        lambda: process if options.transport == "stdio" else State(),
    )


if __name__ == "__main__":
    main()
