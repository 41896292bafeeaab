"""Results as JSON: answers of connections, results of our own tools, and errors that a model can act on."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import orjson

from ...sessions.calls.notices import NOTICE_MEMBER, NOTICE_META
from ...sessions.calls.request import Answer
from ...sessions.errors import ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON
from ...tools.app_pages import with_app_page
from ...tools.own.definition import Outcome, OwnTool
from ..gateway.own_tools import AnotherProcess
from ..sdk.caller import OUR_STATE
from .uris import addressed, session_uri

SESSION_META = "statehold/session"
ERROR_META = "statehold/error"
INSTANCE_META = "statehold/instance"
"""The process that answers; see gateway/own_tools.py."""
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_KNOWN = frozenset({"text", "image", "audio", "resource", "resource_link"})


def text_block(text: str) -> JSON:
    return {"type": "text", "text": text}


def forwarded(
    answer: Answer, *, service: str, modern: bool, info: JSON, own_uris: bool = False
) -> JSON:
    """Return the result of an upstream call with the session's summary and, once, the notice of replaced connections.

    `own_uris`: the caller addresses resources by the upstream's own URIs; otherwise they get the session's form.

    A legacy client gets what its version can carry: an object as structured content, no result type, no kind of content
    that it does not know.
    """
    found = dict(answer.payload)
    if found.get("resultType") == "input_required":
        return _stamped(asking(found), answer.session, modern, info)
    content: list[JSON] = list(found.get("content", ()))
    meta = dict(found.get("_meta") or {})
    if not own_uris:
        content = [addressed(block, answer.session["id"], service) for block in content]
        meta = with_app_page(meta, partial(session_uri, answer.session["id"], service))
    meta.pop(NOTICE_META, None)
    if answer.notice is not None:
        content.insert(0, text_block(answer.notice))
        meta[NOTICE_META] = answer.notice
    found["content"], found["_meta"] = content, meta
    if modern:
        found["resultType"] = "complete"
    else:
        found.pop("resultType", None)
        found["content"] = [_known(block) for block in content]
        structured = found.get("structuredContent")
        if structured is None:
            found.pop("structuredContent", None)
        elif not isinstance(structured, dict):
            found["structuredContent"] = {"result": structured}
    structured = found.get("structuredContent")
    if answer.notice is not None and answer.accepts_notice and isinstance(structured, dict):
        found["structuredContent"] = {**structured, NOTICE_MEMBER: answer.notice}
    return _stamped(found, answer.session, modern, info)


def own(outcome: Outcome, tool: OwnTool, *, modern: bool, info: JSON) -> JSON:
    """Return the result of one of our own tools: the JSON as structured content, and as compact text without nulls."""
    content = [text_block(_compact(tool.without_nulls(outcome.content)))]
    found: JSON = {
        "content": content,
        "structuredContent": outcome.content,
        "isError": False,
    }
    if outcome.notice is not None:
        content.insert(0, text_block(outcome.notice))
        found["_meta"] = {NOTICE_META: outcome.notice}
        found["structuredContent"] = {**outcome.content, NOTICE_MEMBER: outcome.notice}
    if modern:
        found["resultType"] = "complete"
    return _stamped(found, outcome.session, modern, info)


def _compact(content: JSON) -> str:
    try:
        return orjson.dumps(content).decode()
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits are legal JSON.
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _indented(content: JSON) -> str:
    try:
        return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # Integers of more than 64 bits are legal JSON.
        return json.dumps(content, indent=2, ensure_ascii=False)


def failed(error: SessionError, session: JSON | None, *, modern: bool, info: JSON) -> JSON:
    """Return an error as a tool result that a model can act on: `code: message`, then what to do next."""
    found: JSON = {
        "content": [text_block(f"{error.code}: {error.message}\n{error.recovery}")],
        "isError": True,
        "_meta": {ERROR_META: error.details()},
    }
    if isinstance(error, AnotherProcess):
        found["_meta"][INSTANCE_META] = error.instance
    if modern:
        found["resultType"] = "complete"
    return _stamped(found, session, modern, info)


def store_down() -> SessionError:
    """Return the error for a caller when the store fails; the cause is in the log."""
    return ServiceUnavailable(
        "The session store is not available.",
        recovery="Try again later; the log of the server has the cause.",
    )


def _stamped(found: JSON, session: dict[str, Any] | None, modern: bool, info: JSON) -> JSON:
    meta = dict(found.get("_meta") or {})
    meta.pop(SERVER_INFO, None)
    if session is not None:
        meta[SESSION_META] = session
    if modern:
        meta[SERVER_INFO] = info
    found["_meta"] = meta
    return found


def _known(block: JSON) -> JSON:
    """Return a block of a type that legacy clients know; they would reject a whole result with another one."""
    return block if block.get("type") in _KNOWN else text_block(_indented(block))


def asking(found: JSON) -> JSON:
    """Return a result that asks for input with its `requestState`, where it has one, marked as an upstream's."""
    state: object = found.get("requestState")
    return {**found, "requestState": OUR_STATE + state} if isinstance(state, str) else found


__all__ = [
    "ERROR_META",
    "SESSION_META",
    "asking",
    "failed",
    "forwarded",
    "own",
    "store_down",
    "text_block",
]
