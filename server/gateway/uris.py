"""Addresses in sessions: resources of services, and states.

The address of a resource is `session://ID/SERVICE/URI`, with the service's own URI percent-encoded. A `ui://` resource has
the address `ui://ID/SERVICE/URI`, since hosts of MCP Apps open pages of that scheme only. In a tool list, which belongs to
no session, the address of such a page is `ui://SERVICE/URI`. The files of skills belong to no session either: theirs is
`skill://SERVICE/PATH`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, cast
from urllib.parse import quote, unquote

from ...sessions.json_codec import JSON

SCHEME: Final = "session://"
PAGE_SCHEME: Final = "ui://"
SKILL_SCHEME: Final = "skill://"


def session_uri(session_id: str, service: str, uri: str) -> str:
    """Return the address of a service's resource in one session.

    The files of a browser have paths instead of URIs; their slashes are not encoded.
    """
    safe = "" if ":" in uri else "/"
    return f"{_scheme(uri)}{session_id}/{quote(service, safe='')}/{quote(uri, safe=safe)}"


def session_template(session_id: str, service: str, template: str) -> str:
    """Return the address of a template in a session; the text between its braces is unchanged."""
    parts = re.split(r"(\{[^{}]*\})", template)
    quoted_parts = (part if part.startswith("{") else quote(part, safe="") for part in parts)
    return f"{_scheme(template)}{session_id}/{quote(service, safe='')}/{''.join(quoted_parts)}"


def matches_template(template: object, uri: str) -> bool:
    """Whether a URI is that of a template, or of a resource without a variable."""
    if not isinstance(template, str):
        return False
    parts = re.split(r"\{[^{}]*\}", template)
    # Without a backtracking expression: the template is a stranger's.
    if len(parts) == 1:
        return uri == template
    first, *others, last = parts
    if not (uri.startswith(first) and uri.endswith(last)):
        return False
    place, end = len(first), len(uri) - len(last)
    for part in others:
        place = uri.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return place <= end


def parse_session_uri(uri: str) -> tuple[str, str, str] | None:
    """Return session, service and the upstream's own URI, None for any other address."""
    for scheme in (SCHEME, PAGE_SCHEME):
        parts = uri.removeprefix(scheme).split("/", 2)
        if uri.startswith(scheme) and len(parts) == 3 and all(parts):
            session, service, upstream_uri = map(unquote, parts)
            # ui:// may also be the upstream's own URI: in our form, a second ui:// is inside.
            if scheme == SCHEME or upstream_uri.startswith(PAGE_SCHEME):
                return session, service, upstream_uri
    return None


def page_uri(service: str, uri: str) -> str:
    """Return the address of the page of an MCP App in a tool list; a URI of another scheme is returned unchanged."""
    if not uri.startswith(PAGE_SCHEME):
        return uri
    return f"{PAGE_SCHEME}{quote(service, safe='')}/{quote(uri, safe='')}"


def parse_page_uri(uri: str) -> tuple[str, str] | None:
    """Return service and the upstream's own URI of a page in a tool list, None for any other address."""
    parts = uri.removeprefix(PAGE_SCHEME).split("/")
    if not uri.startswith(PAGE_SCHEME) or len(parts) != 2 or not parts[0]:
        return None
    service, upstream_uri = map(unquote, parts)
    return (service, upstream_uri) if upstream_uri.startswith(PAGE_SCHEME) else None


def skill_uri(service: str, uri: str) -> str:
    """Return the address of a file of a skill. The last part of the skill's path stays its name, as SEP-2640 demands.

    The scheme of a URI that is not `skill://` becomes a part of the path: `skill://SERVICE/~github/owner/repository`.
    """
    scheme, _, path = uri.partition("://")
    if scheme != "skill" or path.startswith("~"):
        path = f"~{scheme}/{path}"
    return f"{SKILL_SCHEME}{quote(service, safe='')}/{path}"


def parse_skill_uri(uri: str) -> tuple[str, str] | None:
    """Return service and the upstream's own URI of a file of a skill, None for any other address."""
    service, _, path = uri.removeprefix(SKILL_SCHEME).partition("/")
    if not uri.startswith(SKILL_SCHEME) or not service or not path:
        return None
    scheme = "skill"
    if path.startswith("~"):
        scheme, _, path = path[1:].partition("/")
    return unquote(service), f"{scheme}://{path}"


def state_uri(session_id: str) -> str:
    """Return the address of the state of a session: `session://ID/state`."""
    return f"{SCHEME}{quote(session_id, safe='')}/state"


def parse_state_uri(uri: str) -> str | None:
    """Return the id or name of the session in the address of a state, None for any other address."""
    if not uri.startswith(SCHEME):
        return None
    parts = uri[len(SCHEME) :].split("/")
    return unquote(parts[0]) if len(parts) == 2 and parts[0] and parts[1] == "state" else None


def address_block(block: JSON, session_id: str, service: str) -> JSON:
    """Return a content block with the URI of its linked or embedded resource replaced by the address in the session."""
    if block.get("type") == "resource_link" and isinstance(block.get("uri"), str):
        return {**block, "uri": session_uri(session_id, service, block["uri"])}
    resource: object = block.get("resource")
    if block.get("type") != "resource" or not isinstance(resource, dict):
        return block
    embedded_resource = cast("JSON", resource)
    uri = session_uri(session_id, service, str(embedded_resource.get("uri")))
    return {**block, "resource": {**embedded_resource, "uri": uri}}


def address_contents(result: JSON, uri: str, address: Callable[[str], str]) -> JSON:
    """Return a result of `resources/read` for `uri` with the URI of each part replaced by `address` of it."""
    if not isinstance(result.get("contents"), list):
        return result
    parts = [cast("JSON", part) for part in result["contents"] if isinstance(part, dict)]
    contents = [{**part, "uri": address(str(part.get("uri", uri)))} for part in parts]
    return {**result, "contents": contents}


def address_contents_in_session(result: JSON, session_id: str, *, service: str, uri: str) -> JSON:
    """Return a result of `resources/read` for `uri` with the URI of each part replaced by the address in the session."""
    return address_contents(result, uri, partial(session_uri, session_id, service))


def address_messages_in_session(result: JSON, session_id: str, *, service: str) -> JSON:
    """Return a result of `prompts/get` with the URIs of its resources replaced by the addresses in the session."""
    messages: list[JSON] = [m for m in result.get("messages") or () if isinstance(m, dict)]
    addressed = [
        {**message, "content": address_block(message["content"], session_id, service)}
        for message in messages
        if isinstance(message.get("content"), dict)
    ]
    return {**result, "messages": addressed}


def _scheme(uri: str) -> str:
    return PAGE_SCHEME if uri.startswith(PAGE_SCHEME) else SCHEME
