"""Results as JSON: answers of connections, results of our own tools, and errors that a model can act on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import orjson

from ...sessions.attribution import NOTICE_MEMBER, NOTICE_META, notice_member
from ...sessions.errors import ServiceUnavailable, SessionError, StillRunning
from ...sessions.json_codec import JSON
from ...tools.catalog import with_app_page
from ...tools.own.own_tool import Outcome, OwnTool
from ..gateway.own_tools import AnotherProcess
from ..gateway.uris import address_block, session_uri
from ..sdk.caller import INSTANCE_META, OUR_STATE, SESSION_META

ERROR_META = "statehold/error"
ERROR_HEADING = "### Error\n"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_RESOURCES = frozenset({"resource", "resource_link"})
"""The types of content blocks that have a URI of the upstream."""
_LEGACY_TYPES = frozenset({"text", "image", "audio", *_RESOURCES})


def text_block(text: str) -> JSON:
    return {"type": "text", "text": text}


@dataclass(frozen=True, slots=True)
class ResultForm:
    """The form of the result of one request."""

    modern: bool
    info: JSON
    """The name and version of this server."""
    asks_session: bool = False
    """Whether the request asks for the summary of the session. Other results have it when they tell of a new session or a
    replaced connection only, because many clients show their model all of `_meta`."""


class AnsweringSession(Protocol):
    """The session of an answer: live, or as it is recorded."""

    @property
    def id(self) -> str: ...

    def summary(self) -> JSON:
        """Return the summary of the session for results."""
        ...


class ResultSource(Protocol):
    """The answer to a call, new or recorded; see CallAnswer."""

    @property
    def payload(self) -> JSON: ...

    @property
    def session(self) -> AnsweringSession: ...

    @property
    def notice(self) -> str | None: ...

    @property
    def is_first(self) -> bool: ...

    @property
    def accepts_notice(self) -> bool: ...


def service_result(
    answer: ResultSource, form: ResultForm, *, service: str, own_uris: bool = False
) -> JSON:
    """Return the result of an upstream call with the notice of replaced connections, if any.

    `own_uris`: the caller addresses resources by the upstream's own URIs; otherwise URIs become addresses in the session.

    The result for a legacy client is limited to its version: structured content is an object, there is no result type, and
    content blocks of a newer type become text.
    """
    result = dict(answer.payload)
    is_news = answer.is_first or answer.notice is not None
    session = answer.session.summary() if form.asks_session or is_news else None
    if result.get("resultType") == "input_required":
        return _with_meta(mark_request_state(result), session, form)
    content: list[JSON] = list(result.get("content", ()))
    meta = dict(result.get("_meta") or {})
    if not own_uris:
        session_id = answer.session.id
        content = [
            address_block(block, session_id, service) if block.get("type") in _RESOURCES else block
            for block in content
        ]
        if meta:
            meta = with_app_page(meta, partial(session_uri, session_id, service))
    meta.pop(NOTICE_META, None)
    if answer.notice is not None:
        content = _with_notice(content, answer.notice)
        meta[NOTICE_META] = answer.notice
    result["content"], result["_meta"] = content, meta
    if form.modern:
        result["resultType"] = "complete"
    else:
        result.pop("resultType", None)
        result["content"] = [_legacy_block(block) for block in content]
        structured_content = result.get("structuredContent")
        if structured_content is None:
            result.pop("structuredContent", None)
        elif not isinstance(structured_content, dict):
            result["structuredContent"] = {"result": structured_content}
    structured_content = result.get("structuredContent")
    if answer.notice is not None and answer.accepts_notice and isinstance(structured_content, dict):
        result["structuredContent"] = {**structured_content, NOTICE_MEMBER: answer.notice}
    return _with_meta(result, session, form)


def _with_notice(content: list[JSON], notice: str) -> list[JSON]:
    """Return content blocks whose first one has the notice, because some clients read the first block only.

    A JSON object gets it as its last member, any other text as its last paragraph. It comes before a block without text.
    """
    text: object = content[0].get("text") if content else None
    if not isinstance(text, str) or content[0].get("type") != "text":
        return [text_block(notice), *content]
    end = _end_of_object(text)
    if end is None:
        text = f"{text}\n\n{notice}" if text else notice
    else:
        member = notice_member(notice, is_first=text[:end].strip() == "{")
        text = f"{text[:end]}{member}{text[end:]}"
    return [{**content[0], "text": text}, *content[1:]]


def _end_of_object(text: str) -> int | None:
    """Return the position of the last brace of a text that is a JSON object, None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return text.rindex("}")


def own_tool_result(outcome: Outcome, tool: OwnTool, form: ResultForm) -> JSON:
    """Return the result of one of our own tools: the JSON as structured content, and as compact text without nulls."""
    content = [text_block(_dump_compact(tool.without_nulls(outcome.content))), *outcome.blocks]
    result: JSON = {
        "content": content,
        "structuredContent": outcome.content,
        "isError": False,
    }
    if outcome.notice is not None:
        result["content"] = _with_notice(content, outcome.notice)
        result["_meta"] = {NOTICE_META: outcome.notice}
        result["structuredContent"] = {**outcome.content, NOTICE_MEMBER: outcome.notice}
    if form.modern:
        result["resultType"] = "complete"
    has_session = form.asks_session or outcome.notice is not None
    return _with_meta(result, outcome.session if has_session else None, form)


def _dump_compact(content: JSON) -> str:
    try:
        return orjson.dumps(content).decode()
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits are legal JSON.
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _dump_indented(content: JSON) -> str:
    try:
        return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits are legal JSON.
        return json.dumps(content, indent=2, ensure_ascii=False)


def error_result(
    error: SessionError, session: JSON | None, form: ResultForm, *, heading: bool = False
) -> JSON:
    """Return an error as a tool result that a model can act on: `code: message`, then what to do next.

    `heading`: begin with the heading that the browser's results have, as in @playwright/mcp.
    """
    text = f"{error.code}: {error.message}\n{error.recovery}"
    result: JSON = {
        "content": [text_block(ERROR_HEADING + text if heading else text)],
        "isError": True,
        "_meta": {ERROR_META: error.details()},
    }
    if isinstance(error, AnotherProcess):
        result["_meta"][INSTANCE_META] = error.instance
    if form.modern:
        result["resultType"] = "complete"
    return _with_meta(result, session, form)


def store_down() -> SessionError:
    """Return the error of calls that fail because the store does. It hides the cause, which is logged."""
    return ServiceUnavailable(
        "The session store is not available.",
        recovery="Try again later; the log of the server has the cause.",
    )


def _with_meta(result: JSON, session: dict[str, Any] | None, form: ResultForm) -> JSON:
    meta = dict(result.get("_meta") or {})
    meta.pop(SERVER_INFO, None)
    if session is not None:
        meta[SESSION_META] = session
    if form.modern:
        meta[SERVER_INFO] = form.info
    if meta:
        result["_meta"] = meta
    else:
        result.pop("_meta", None)
    return result


def _legacy_block(block: JSON) -> JSON:
    """Return a block of a type that legacy clients know: they reject a whole result that has a block of another type."""
    return block if block.get("type") in _LEGACY_TYPES else text_block(_dump_indented(block))


def mark_request_state(result: JSON) -> JSON:
    """Return a result that asks for input, with its `requestState` (if any) marked as that of an upstream."""
    state: object = result.get("requestState")
    return {**result, "requestState": OUR_STATE + state} if isinstance(state, str) else result


def outcome_of(result: JSON | BaseException) -> str:
    """Return how a tool call ended, from its result or error: `still_running` for one that became a task."""
    if isinstance(result, BaseException):
        return result.code if isinstance(result, SessionError) else "error"
    if result.get("resultType") == "task":
        return StillRunning.code
    if not result.get("isError"):
        return "ok"
    meta: object = result.get("_meta")
    error: object = cast("JSON", meta).get(ERROR_META) if isinstance(meta, dict) else None
    return str(cast("JSON", error).get("code", "error")) if isinstance(error, dict) else "error"
