"""The server that the official conformance suite expects: `python conformance.py [--port N] [--era E]`.

Names and answers of tools, prompts and resources are those that the scenarios of `@modelcontextprotocol/conformance` ask
for. With `--transport http` it serves as the reference; behind Statehold it is an upstream like any other.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from conformance_lists import (
    AUDIO,
    ENUMS,
    FORM_DEFAULTS,
    IMAGE,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    tool,
)
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from serving import arguments, run

JSON: TypeAlias = dict[str, Any]
Context: TypeAlias = ServerRequestContext[None, Any]
Tool: TypeAlias = Callable[["Conformance", Context, JSON], Awaitable[JSON]]

RETRY_MS = 100
PAUSE_SECONDS = 0.05
"""The pause between two notifications that the scenarios ask for."""
LONG_SECONDS = 1.0
"""A call of this length is answered with a stream by a server that answers short ones with plain JSON."""


def text(value: str) -> JSON:
    return {"content": [{"type": "text", "text": value}]}


def embedded(uri: str, mime: str, value: str) -> JSON:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": value}}


def form(message: str, **properties: JSON) -> JSON:
    """Return a form whose fields are all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": ELICIT, "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int) -> JSON:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [message], "maxTokens": tokens},
    }


ELICIT = "elicitation/create"
STRING = {"type": "string"}
ROOTS: JSON = {"method": "roots/list", "params": {}}
ASK_NAME = form("What is your name?", name=STRING)
QUESTIONS: dict[str, tuple[Any, Any]] = {
    ELICIT: (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
CONFIRM = form("Please confirm", ok={"type": "boolean"})


class Pending(Exception):
    """Raised with the result that asks for input."""

    def __init__(self, result: JSON) -> None:
        self.result = result


def filled(answers: JSON, key: str) -> JSON:
    """Return the values that a person filled into a form, or an empty object."""
    return answers[key].get("content") or {}


class Conformance:
    """The handlers of one process."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self.bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self.bus)
        self.tool_changes = 0
        self.prompt_changes = 0

    # Tools.

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        run_tool = CALLED.get(params.name)
        if run_tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        try:
            return await run_tool(self, ctx, dict(ctx.params or {}))
        except Pending as pending:
            return pending.result

    async def logging(self, ctx: Context, params: JSON) -> JSON:
        for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message(  # pyright: ignore[reportDeprecated]
                "info", step, related_request_id=ctx.request_id
            )
            await anyio.sleep(PAUSE_SECONDS)
        return text("Tool with logging executed successfully")

    async def progress(self, ctx: Context, params: JSON) -> JSON:
        for step in (0, 50, 100):
            await ctx.session.report_progress(step, 100, f"Completed step {step} of 100")
            await anyio.sleep(PAUSE_SECONDS)
        return text("Tool with progress executed successfully")

    async def failing(self, ctx: Context, params: JSON) -> JSON:
        return {**text("This tool intentionally returns an error for testing"), "isError": True}

    async def sampling(self, ctx: Context, params: JSON) -> JSON:
        request = sample(str(params["arguments"]["prompt"]), 100)
        answers = await self._answers(ctx, params, {"sample": request})
        return text(f"LLM response: {answers['sample']['content']['text']}")

    async def elicitation(self, ctx: Context, params: JSON) -> JSON:
        question = form(str(params["arguments"]["message"]), username=STRING, email=STRING)
        return await self._elicited(ctx, params, question)

    async def defaults(self, ctx: Context, params: JSON) -> JSON:
        question = {"message": "Please provide user information", "requestedSchema": FORM_DEFAULTS}
        return await self._elicited(ctx, params, {"method": ELICIT, "params": question})

    async def enums(self, ctx: Context, params: JSON) -> JSON:
        question = {"message": "Please select options", "requestedSchema": ENUMS}
        return await self._elicited(ctx, params, {"method": ELICIT, "params": question})

    async def _elicited(self, ctx: Context, params: JSON, question: JSON) -> JSON:
        answers = (await self._answers(ctx, params, {"elicit": question}))["elicit"]
        words = json.dumps(answers.get("content"))
        return text(f"User response: action={answers['action']}, content={words}")

    async def reconnection(self, ctx: Context, params: JSON) -> JSON:
        if ctx.close_sse_stream is None:
            await anyio.sleep(LONG_SECONDS)
        else:
            await ctx.close_sse_stream()
            await anyio.sleep(PAUSE_SECONDS)
        return text("Reconnection test completed")

    async def missing_capability(self, ctx: Context, params: JSON) -> JSON:
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "This tool needs sampling",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return text("sampling is declared")

    async def streaming(self, ctx: Context, params: JSON) -> JSON:
        await ctx.session.report_progress(50, 100)
        return text("Streaming complete")

    async def tool_change(self, ctx: Context, params: JSON) -> JSON:
        self.tool_changes += 1
        await self.bus.publish(ToolsListChanged())
        await ctx.session.send_tool_list_changed()
        return text("Mutation triggered")

    async def prompt_change(self, ctx: Context, params: JSON) -> JSON:
        self.prompt_changes += 1
        await self.bus.publish(PromptsListChanged())
        await ctx.session.send_prompt_list_changed()
        return text("Mutation triggered")

    # Tools that ask for input.

    async def ask_name(self, ctx: Context, params: JSON) -> JSON:
        answers = await self._answers(ctx, params, {"user_name": ASK_NAME})
        return text(f"Hello, {filled(answers, 'user_name').get('name')}!")

    async def ask_model(self, ctx: Context, params: JSON) -> JSON:
        question = sample("What is the capital of France?", 100)
        answers = await self._answers(ctx, params, {"capital_question": question})
        return text(str(answers["capital_question"]["content"]["text"]))

    async def ask_roots(self, ctx: Context, params: JSON) -> JSON:
        answers = await self._answers(ctx, params, {"client_roots": ROOTS})
        return text(f"roots: {', '.join(root['uri'] for root in answers['client_roots']['roots'])}")

    async def ask_with_state(self, ctx: Context, params: JSON) -> JSON:
        await self._answers(ctx, params, {"confirm": CONFIRM}, "confirm")
        return text("state-ok")

    async def ask_many(self, ctx: Context, params: JSON) -> JSON:
        greeting = sample("Generate a greeting", 50)
        questions = {"user_name": ASK_NAME, "greeting": greeting, "client_roots": ROOTS}
        await self._answers(ctx, params, questions, "many")
        return text("all inputs received")

    async def ask_twice(self, ctx: Context, params: JSON) -> JSON:
        words = "first"
        if "step2" not in (params.get("inputResponses") or {}):
            first = form("Step 1: What is your name?", name=STRING)
            answers = await self._answers(ctx, params, {"step1": first}, words)
            words = str(filled(answers, "step1").get("name"))
        second = form("Step 2: What is your favorite color?", color=STRING)
        answers = await self._answers(ctx, params, {"step2": second}, words)
        return text(f"Step 2: {filled(answers, 'step2').get('color')}")

    async def ask_declared(self, ctx: Context, params: JSON) -> JSON:
        capabilities = ctx.session.client_capabilities
        questions: JSON = {}
        if capabilities is not None and capabilities.elicitation is not None:
            questions["elicit"] = ASK_NAME
        if capabilities is not None and capabilities.sampling is not None:
            questions["sample"] = sample("Sample request", 50)
        await self._answers(ctx, params, questions, "declared")
        return text("capabilities-ok")

    async def _answers(
        self, ctx: Context, params: JSON, questions: JSON, state: str | None = None
    ) -> JSON:
        """Return the answers to questions, asked in the way of the caller's era.

        Raises:
            Pending: a 2026-07-28 caller has to answer first, and send `state` back unchanged.
        """
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return {key: await self._answer(ctx, request) for key, request in questions.items()}
        responses: JSON = params.get("inputResponses") or {}
        if not all(isinstance(responses.get(key), dict) for key in questions):
            result: JSON = {"resultType": "input_required", "inputRequests": questions}
            raise Pending(
                result if state is None else {**result, "requestState": self._seal(state)}
            )
        if state is not None:
            self._check_seal(str(params.get("requestState")))
        return responses

    async def _answer(self, ctx: Context, request: JSON) -> JSON:
        kind, answer = QUESTIONS[request["method"]]
        metadata = ServerMessageMetadata(ctx.request_id)
        request_model = kind.model_validate(request)
        result = await ctx.session.send_request(request_model, answer, metadata=metadata)
        return result.model_dump(by_alias=True, exclude_none=True, mode="json")

    def _seal(self, value: str) -> str:
        """Return a state that says `value` and cannot be changed."""
        return f"{value}.{hmac.new(self.key, value.encode(), hashlib.sha256).hexdigest()}"

    def _check_seal(self, state: str) -> None:
        if not hmac.compare_digest(state, self._seal(state.rpartition(".")[0])):
            raise MCPError(types.INVALID_PARAMS, "requestState was changed")

    # Prompts, resources, lists.

    async def prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Any:
        values = params.arguments or {}
        if params.name == "test_input_required_result_prompt":
            question = {"user_context": form("What context should it use?", context=STRING)}
            try:
                answers = await self._answers(ctx, dict(ctx.params or {}), question)
            except Pending as pending:
                return pending.result
            words = filled(answers, "user_context").get("context")
            return messages({"type": "text", "text": f"Prompt with context: {words}"})
        if params.name == "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{values['arg1']}', arg2='{values['arg2']}'"
            return messages({"type": "text", "text": words})
        if params.name == "test_prompt_with_embedded_resource":
            resource = embedded(values["resourceUri"], "text/plain", "Embedded resource content.")
            return messages(
                resource, {"type": "text", "text": "Please process the resource above."}
            )
        if params.name == "test_prompt_with_image":
            return messages(IMAGE, {"type": "text", "text": "Please analyze the image above."})
        if params.name != "test_simple_prompt":
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return messages({"type": "text", "text": "This is a simple prompt for testing."})

    async def read(self, ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri == "test://static-binary":
            part = {"uri": uri, "mimeType": "image/png", "blob": IMAGE["data"]}
        elif uri.startswith("test://template/") and uri.endswith("/data"):
            number = uri.removeprefix("test://template/").removesuffix("/data")
            content = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            part = {"uri": uri, "mimeType": "application/json", "text": json.dumps(content)}
        elif uri in {resource["uri"] for resource in RESOURCES}:
            part = {"uri": uri, "mimeType": "text/plain", "text": f"The content of {uri}."}
        else:
            raise MCPError(types.INVALID_PARAMS, "Unknown resource", {"uri": uri})
        return {"contents": [part]}

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> Any:
        values = [v for v in ("paris", "park", "party") if v.startswith(params.argument.value)]
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}

    async def tools(self, ctx: Context, params: object) -> Any:
        return {"tools": [*TOOLS, *([tool("added")] if self.tool_changes % 2 else ())]}

    async def prompts(self, ctx: Context, params: object) -> Any:
        added = [{"name": "added_prompt", "description": "Was added."}]
        return {"prompts": [*PROMPTS, *(added if self.prompt_changes % 2 else ())]}

    async def resources(self, ctx: Context, params: object) -> Any:
        return {"resources": RESOURCES}

    async def templates(self, ctx: Context, params: object) -> Any:
        return {"resourceTemplates": TEMPLATES}

    async def acknowledge(self, ctx: Context, params: object) -> Any:
        return {}


def messages(*blocks: JSON) -> JSON:
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


def answering(*blocks: JSON) -> Tool:
    """Return a tool that always answers the same."""

    async def answer(_server: Conformance, _ctx: Context, _params: JSON) -> JSON:
        return {"content": list(blocks)}

    return answer


CALLED: dict[str, Tool] = {
    "test_simple_text": answering(
        {"type": "text", "text": "This is a simple text response for testing."}
    ),
    "test_image_content": answering(IMAGE),
    "test_audio_content": answering(AUDIO),
    "test_embedded_resource": answering(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": answering(
        {"type": "text", "text": "Multiple content types test:"},
        IMAGE,
        embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ),
    "json_schema_2020_12_tool": answering({"type": "text", "text": "called"}),
    "test_x_mcp_header": answering({"type": "text", "text": "called"}),
    "test_logging_tool": Conformance.logging,
    "test_tool_with_logging": Conformance.logging,
    "test_tool_with_progress": Conformance.progress,
    "test_error_handling": Conformance.failing,
    "test_sampling": Conformance.sampling,
    "test_elicitation": Conformance.elicitation,
    "test_elicitation_sep1034_defaults": Conformance.defaults,
    "test_elicitation_sep1330_enums": Conformance.enums,
    "test_reconnection": Conformance.reconnection,
    "test_missing_capability": Conformance.missing_capability,
    "test_streaming_elicitation": Conformance.streaming,
    "test_trigger_tool_change": Conformance.tool_change,
    "test_trigger_prompt_change": Conformance.prompt_change,
    "test_input_required_result_elicitation": Conformance.ask_name,
    "test_input_required_result_sampling": Conformance.ask_model,
    "test_input_required_result_list_roots": Conformance.ask_roots,
    "test_input_required_result_request_state": Conformance.ask_with_state,
    "test_input_required_result_multiple_inputs": Conformance.ask_many,
    "test_input_required_result_multi_round": Conformance.ask_twice,
    "test_input_required_result_tampered_state": Conformance.ask_with_state,
    "test_input_required_result_capabilities": Conformance.ask_declared,
}


class Events(EventStore):
    """The messages of all streams, for clients that come back."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        if not last_event_id.isdecimal() or not 0 < int(last_event_id) <= len(self._kept):
            return None
        wanted = self._kept[int(last_event_id) - 1][0]
        for number, (stream, message) in enumerate(self._kept, 1):
            if number > int(last_event_id) and stream == wanted and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return wanted


class ConformanceServer(Server[None]):
    """Declares that its lists change; the SDK asks for the options without arguments over legacy HTTP."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **named: Any
    ) -> InitializationOptions:
        changed = NotificationOptions(
            tools_changed=True, prompts_changed=True, resources_changed=True
        )
        options = notification_options or changed
        return super().create_initialization_options(options, *more, **named)


HINTS: JSON = {"ttlMs": 0, "cacheScope": "private"}


def complete(handler: Callable[[Context, Any], Awaitable[Any]], **more: Any) -> Any:
    """Return a handler whose results have the type, and `more`, that 2026-07-28 demands."""

    async def handled(ctx: Context, params: Any) -> Any:
        result = await handler(ctx, params)
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return {"resultType": "complete", **more, **result} if modern else result

    return handled


def build() -> ConformanceServer:
    served = Conformance()

    @asynccontextmanager
    async def life(_: Server[None]) -> AsyncGenerator[None]:
        yield None

    schemas = {tool["name"]: tool["inputSchema"] for tool in TOOLS}
    server = ConformanceServer(
        "conformance",
        version="1.0",
        lifespan=life,
        instructions="Answers what the conformance suite asks.",
        get_tool_input_schema=schemas.get,
        on_list_tools=complete(served.tools, **HINTS),
        on_call_tool=complete(served.call),
        on_list_resources=complete(served.resources, **HINTS),
        on_list_resource_templates=complete(served.templates, **HINTS),
        on_read_resource=complete(served.read, **HINTS),
        on_list_prompts=complete(served.prompts, **HINTS),
        on_get_prompt=complete(served.prompt),
        on_completion=complete(served.complete),
        on_subscribe_resource=complete(served.acknowledge),
        on_unsubscribe_resource=complete(served.acknowledge),
        on_subscriptions_listen=served.listening,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, served.acknowledge)
    return server


def main() -> None:
    warnings.filterwarnings("ignore", category=MCPDeprecationWarning)
    options = arguments(__doc__ or "").parse_args()
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=["127.0.0.1:*", "localhost:*"],
        allowed_origins=["http://127.0.0.1:*", "http://localhost:*"],
    )
    run(
        build(),
        options,
        lambda: None,
        event_store=Events(),
        retry_interval=RETRY_MS,
        security_settings=security,
    )


if __name__ == "__main__":
    main()
