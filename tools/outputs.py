"""Texts and links of MCP servers on their way to a model or a person: what cannot be seen, and where links may lead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import orjson

from ..sessions.json_codec import JSON
from ..sessions.one_line import escape_hidden, has_hidden, without_hidden
from .browser.egress.addresses import is_loopback_host

_ESCAPED: Final = re.compile(rb"\\(?:u00|b|f)")
"""Matches the controls of JSON, in which only DEL stands as it is."""
_ENCODED: Final = (
    re.compile(rb"\xc2[\x80-\x9f]"),
    re.compile(rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])"),
    re.compile(rb"\xf3\xa0[\x80\x81]"),
)
"""Match the other hidden characters in UTF-8. A pattern that begins with one byte is found many times as fast."""
_LINK: Final = re.compile(r"[^\x00-\x20\x7f\\]+")
_IDENTIFIERS: Final = frozenset({"uri", "uriTemplate", "nextCursor", "requestState", "taskId"})
_NAMED: Final = frozenset({"tools", "prompts", "arguments"})
"""The lists of items that are called by their `name`."""
_DATA: Final = frozenset({"structuredContent", "_meta"})
"""The members below which the names of members mean nothing."""
_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates", "contents", "content")
"""The members of results whose items may have icons or a page of an MCP App."""
_OF_CLIENTS: Final = frozenset(
    {"https", "http", "wss", "ws", "ftp", "javascript", "vbscript", "data", "blob", "about"}
)
"""The schemes that clients open by themselves. Others are addresses at the server, which Statehold reads."""


@dataclass(frozen=True, slots=True)
class OutputRules:
    """The rules for the texts and the links of one service."""

    exact: bool = False
    """Whether the texts of results are passed on as they are."""
    https: bool = False
    """Whether links must be HTTPS or lead to this machine."""


PASSED: Final = OutputRules()
"""The rules without a configuration: texts are cleaned, and links are passed on."""


def clean_texts(fields: JSON, *, escape: bool = False) -> None:
    """Remove hidden characters from the texts and keys of a message, in place. `escape`: write them out, for a person.

    Identifiers stay, since the server would not know them again.
    """
    if not _may_have_hidden(fields):
        return
    clean = escape_hidden if escape else without_hidden
    pending: list[tuple[Any, bool, bool]] = [(fields, False, False)]
    for value, is_named, is_data in pending:
        members: JSON = cast("JSON", value) if isinstance(value, dict) else {}
        for key in [*filter(has_hidden, members)]:
            name = clean(key)
            members[escape_hidden(key) if name in members else name] = members.pop(key)
        items: list[tuple[Any, Any]] = [*(members.items() or enumerate(cast("list[Any]", value)))]
        for key, child in items:
            if isinstance(child, str):
                is_identifier = key in _IDENTIFIERS or (is_named and key == "name")
                if is_data or not is_identifier:
                    value[key] = clean(child)
            elif isinstance(child, dict | list):
                has_names = key in _NAMED or (is_named and not members)
                pending.append((cast("object", child), has_names, is_data or key in _DATA))


def _may_have_hidden(value: object) -> bool:
    """Whether a JSON value may have hidden characters. Writing it takes a tenth of the time of a look at each member."""
    try:
        data = orjson.dumps(value)
    except TypeError:
        return True  # it has integers of more than 64 bits, or half a surrogate pair
    if b"\x7f" in data or _ESCAPED.search(data):
        return True
    return not data.isascii() and any(pattern.search(data) for pattern in _ENCODED)


def is_safe_link(url: object) -> bool:
    """Whether a link is HTTPS or leads to this machine, for each reader: browsers drop blanks and turn a backslash."""
    if not _LINK.fullmatch(str(url)):
        return False
    try:
        parts = urlsplit(str(url))
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme in ("https", "wss"):
        return bool(host)
    return parts.scheme in ("http", "ws") and is_loopback_host(host)


def restrict_links(result: JSON, service: str) -> None:
    """Leave out the links of a result that are neither HTTPS nor lead to this machine, in place.

    Links are those that the protocol names: links to resources, icons, and the origins that a page of an MCP App may use. A
    link in a text is text.
    """
    blocks: object = result.get("content")
    if isinstance(blocks, list):
        result["content"] = [_safe_block(block, service) for block in cast("list[object]", blocks)]
    for message in _objects(result.get("messages")):
        message["content"] = _safe_block(message.get("content"), service)
    for name in _LISTS:
        for item in _objects(result.get(name)):
            if isinstance(item.get("icons"), list):
                item["icons"] = [icon for icon in _objects(item["icons"]) if _is_safe_icon(icon)]
            csp = _member(_member(_member(item, "_meta"), "ui"), "csp")
            for directive, origins in csp.items():
                if isinstance(origins, list):
                    csp[directive] = [*filter(is_safe_link, cast("list[object]", origins))]


def _safe_block(block: Any, service: str) -> Any:
    if not isinstance(block, dict) or cast("JSON", block).get("type") != "resource_link":
        return cast("object", block)
    uri = str(cast("JSON", block).get("uri"))
    is_ours = _LINK.fullmatch(uri) and uri.partition(":")[0].lower() not in _OF_CLIENTS
    if is_safe_link(uri) or is_ours:
        return cast("JSON", block)
    text = f"[{service} links to {uri}, which is neither HTTPS nor on this machine; the link was left out]"
    return {"type": "text", "text": text}


def _is_safe_icon(icon: JSON) -> bool:
    # The specification allows images in the icon itself.
    source = icon.get("src")
    return is_safe_link(source) or str(source).startswith("data:image/")


def _objects(value: object) -> list[JSON]:
    if not isinstance(value, list):
        return []
    return [cast("JSON", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def _member(fields: JSON, name: str) -> JSON:
    value: object = fields.get(name)
    return cast("JSON", value) if isinstance(value, dict) else {}
