"""Results as JSON: answers of connections, results of our own tools, and errors that a model can act on."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import orjson

from ...sessions.attribution import NOTICE_MEMBER
from ...sessions.calls.notices import NOTICE_META
from ...sessions.calls.request import CallAnswer
from ...sessions.errors import ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON
from ...tools.catalog import with_app_page
from ...tools.own.definition import Outcome, OwnTool
from ..gateway.own_tools import AnotherProcess
from ..gateway.uris import address_block, session_uri
from ..sdk.caller import INSTANCE_META, OUR_STATE

SESSION_META = "statehold/session"
ERROR_META = "statehold/error"
ERROR_HEADING = "### Error\n"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_JSON_STARTS = tuple('{["-0123456789tfnIN')
"""The first characters of a JSON value, and of the `Infinity` and `NaN` that Python writes into JSON."""
_RESOURCES = frozenset({"resource", "resource_link"})
"""The types of content blocks that have a URI of the upstream."""
_LEGACY_TYPES = frozenset({"text", "image", "audio", *_RESOURCES})


def text_block(text: str) -> JSON:
    return {"type": "text", "text": text}


def service_result(
    answer: CallAnswer, *, service: str, modern: bool, info: JSON, own_uris: bool = False
) -> JSON:
    """Return the result of an upstream call with the session's summary and the notice of replaced connections, if any.

    `own_uris`: the caller addresses resources by the upstream's own URIs; otherwise URIs become addresses in the session.

    The result for a legacy client is limited to its version: structured content is an object, there is no result type, and
    content blocks of a newer type become text.
    """
    result = dict(answer.payload)
    if result.get("resultType") == "input_required":
        return _with_meta(mark_request_state(result), answer.session, modern, info)
    content: list[JSON] = list(result.get("content", ()))
    meta = dict(result.get("_meta") or {})
    if not own_uris:
        session_id = answer.session["id"]
        content = [
            address_block(block, session_id, service) if block.get("type") in _RESOURCES else block
            for block in content
        ]
        meta = with_app_page(meta, partial(session_uri, answer.session["id"], service))
    meta.pop(NOTICE_META, None)
    if answer.notice is not None:
        content = _with_notice(content, answer.notice)
        meta[NOTICE_META] = answer.notice
    result["content"], result["_meta"] = content, meta
    if modern:
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
    return _with_meta(result, answer.session, modern, info)


def _with_notice(content: list[JSON], notice: str) -> list[JSON]:
    """Return content blocks with a notice, for clients that read the first block only too: that has to be the tool's own.

    The notice is the last paragraph of a first block of plain text. Beside JSON or a picture it is a second block.
    """
    first_text: object = content[0].get("text") if content else None
    if (
        isinstance(first_text, str)
        and content[0].get("type") == "text"
        and not _is_json(first_text)
    ):
        separator = "\n\n" if first_text else ""
        return [{**content[0], "text": f"{first_text}{separator}{notice}"}, *content[1:]]
    return [*content[:1], text_block(notice), *content[1:]]


def _is_json(text: str) -> bool:
    """Whether a text is a JSON value."""
    if not text.lstrip().startswith(_JSON_STARTS):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def own_tool_result(outcome: Outcome, tool: OwnTool, *, modern: bool, info: JSON) -> JSON:
    """Return the result of one of our own tools: the JSON as structured content, and as compact text without nulls."""
    content = [text_block(_dump_compact(tool.without_nulls(outcome.content))), *outcome.blocks]
    result: JSON = {
        "content": content,
        "structuredContent": outcome.content,
        "isError": False,
    }
    if outcome.notice is not None:
        content.append(text_block(outcome.notice))
        result["_meta"] = {NOTICE_META: outcome.notice}
        result["structuredContent"] = {**outcome.content, NOTICE_MEMBER: outcome.notice}
    if modern:
        result["resultType"] = "complete"
    return _with_meta(result, outcome.session, modern, info)


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
    error: SessionError, session: JSON | None, *, modern: bool, info: JSON, heading: bool = False
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
    if modern:
        result["resultType"] = "complete"
    return _with_meta(result, session, modern, info)


def store_down() -> SessionError:
    """Return the error of calls that fail because the store does. It hides the cause, which is logged."""
    return ServiceUnavailable(
        "The session store is not available.",
        recovery="Try again later; the log of the server has the cause.",
    )


def _with_meta(result: JSON, session: dict[str, Any] | None, modern: bool, info: JSON) -> JSON:
    meta = dict(result.get("_meta") or {})
    meta.pop(SERVER_INFO, None)
    if session is not None:
        meta[SESSION_META] = session
    if modern:
        meta[SERVER_INFO] = info
    result["_meta"] = meta
    return result


def _legacy_block(block: JSON) -> JSON:
    """Return a block of a type that legacy clients know: they reject a whole result that has a block of another type."""
    return block if block.get("type") in _LEGACY_TYPES else text_block(_dump_indented(block))


def mark_request_state(result: JSON) -> JSON:
    """Return a result that asks for input, with its `requestState` (if any) marked as that of an upstream."""
    state: object = result.get("requestState")
    return {**result, "requestState": OUR_STATE + state} if isinstance(state, str) else result


__all__ = [
    "ERROR_META",
    "SESSION_META",
    "mark_request_state",
    "error_result",
    "service_result",
    "own_tool_result",
    "store_down",
    "text_block",
]
