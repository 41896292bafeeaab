"""The values that the client returns, made from the JSON of an answer; those of own tools are in tools/own/results.py."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from ..tools.own.results import SessionInfo, parse_result

if TYPE_CHECKING:
    from mcp_types import ContentBlock

    from ..sessions.json_codec import JSON

SERVICE_META: Final = "statehold/service"
SESSION_META: Final = "statehold/session"
ERROR_META: Final = "statehold/error"
NOTICE_MEMBER: Final = "statehold_notice"
NOTICE_META: Final = "statehold/notice"
INSTANCE_META: Final = "statehold/instance"


def object_of(value: object) -> JSON:
    """Return a JSON object as it is, an empty one for anything else."""
    return cast("JSON", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class SessionBrief:
    """The session fields of a result. The client asks for them with each call."""

    id: str
    name: str | None = None
    status: str = "idle"
    generation: int = 0
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a result."""

    data: bytes
    mime_type: str


class CallResult:
    """The answer of a tool. `payload` is the unchanged JSON of the MCP `CallToolResult`."""

    def __init__(self, payload: JSON) -> None:
        self.payload = payload

    def __repr__(self) -> str:
        return f"<CallResult {'error ' if self.is_error else ''}{self.text[:80]!r}>"

    @property
    def is_error(self) -> bool:
        """Whether the tool reports a failure. A call raises it, unless it was made with `check=False`."""
        return self.payload.get("isError") is True

    @property
    def meta(self) -> JSON:
        return object_of(self.payload.get("_meta"))

    @property
    def session(self) -> SessionBrief | None:
        """The session after the call."""
        brief = self.meta.get(SESSION_META)
        return parse_result(SessionBrief, cast("JSON", brief)) if isinstance(brief, dict) else None

    @property
    def notice(self) -> str | None:
        """The notice of what was restored or lost when a connection was replaced before this call; None when none was."""
        notice = self.meta.get(NOTICE_META)
        return notice if isinstance(notice, str) else None

    @property
    def blocks(self) -> list[JSON]:
        """The unchanged content blocks, without the notice."""
        blocks: list[JSON] = self.payload.get("content") or []
        if self.notice is None or not blocks:
            return blocks
        # The notice is the first block, the last paragraph of it, or the last member of a JSON object in it.
        first = str(blocks[0].get("text", ""))
        if first == self.notice:
            return blocks[1:]
        text = first.removesuffix(f"\n\n{self.notice}")
        if text == first:
            from ..sessions.attribution import notice_member

            for is_first in (False, True):
                before, member, after = text.rpartition(
                    notice_member(self.notice, is_first=is_first)
                )
                if member:
                    text = before + after
        return [{**blocks[0], "text": text}, *blocks[1:]]

    @cached_property
    def content(self) -> list[ContentBlock]:
        """The content blocks as `mcp_types` has them, without the notice."""
        from mcp_types import ContentBlock
        from pydantic import TypeAdapter

        adapter: TypeAdapter[list[ContentBlock]] = TypeAdapter(list[ContentBlock])
        return adapter.validate_python(self.blocks, by_name=False)

    @property
    def text(self) -> str:
        """All text blocks, joined by line ends; the structured content as JSON where there is no text."""
        texts = [block["text"] for block in self.blocks if block.get("type") == "text"]
        return "\n".join(texts) if texts else self.structured_text

    @property
    def structured_text(self) -> str:
        """The structured content as JSON text, without the notice; empty where the tool has none."""
        content = self.structured_content
        return "" if not content else json.dumps(content, ensure_ascii=False)

    @property
    def structured_content(self) -> JSON | None:
        """The structured content without the notice, None where the tool has none."""
        content = self.payload.get("structuredContent")
        if self.notice is not None and isinstance(content, dict):
            content = cast("JSON", content)
            return {key: value for key, value in content.items() if key != NOTICE_MEMBER}
        if content is None or isinstance(content, dict):
            return cast("JSON | None", content)
        return {"result": content}

    @property
    def images(self) -> list[Image]:
        return [
            Image(base64.b64decode(block["data"]), block["mimeType"])
            for block in self.blocks
            if block.get("type") == "image"
        ]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the list. `arguments` is the schema of the arguments that its caller gives, without the session."""

    name: str
    description: str
    arguments: JSON
    input_schema: JSON
    output_schema: JSON | None = None
    title: str | None = None
    annotations: JSON = field(default_factory=dict[str, Any])
    service: str | None = None
    """The service it belongs to; None for Statehold's own tools."""
    session_argument: str | None = None
    """The argument that names the session; None for a tool that needs none."""

    @classmethod
    def of(cls, definition: JSON) -> Tool:
        schema: JSON = definition["inputSchema"]
        service = object_of(definition.get("_meta")).get(SERVICE_META)
        argument = session_argument(schema)
        return cls(
            name=definition["name"],
            description=definition.get("description") or "",
            arguments=_without(schema, argument),
            input_schema=schema,
            output_schema=definition.get("outputSchema"),
            title=definition.get("title"),
            annotations=definition.get("annotations") or {},
            service=service,
            session_argument=argument,
        )


def select_tools(tools: Sequence[Tool], names: Collection[str]) -> list[Tool]:
    """Return the tools of these names, in the order of the list.

    Raises:
        ValueError: there is no tool of one of the names.
    """
    if isinstance(names, str):
        raise TypeError("names is a list of names of tools, such as ['state_get']")
    missing = sorted(set(names) - {tool.name for tool in tools})
    if missing:
        raise ValueError(f"there is no tool {', '.join(missing)}")
    return [tool for tool in tools if tool.name in names]


def session_argument(schema: JSON) -> str | None:
    """Return the name of Statehold's own argument, which comes first, in the schema of a tool."""
    first = next(iter(object_of(schema.get("properties"))), "")
    return first if first == "session_id" or first.startswith("statehold_session_id") else None


def _without(schema: JSON, argument: str | None) -> JSON:
    if argument is None:
        return schema
    properties = {k: v for k, v in schema["properties"].items() if k != argument}
    own_schema = {**schema, "properties": properties}
    required = [name for name in schema.get("required", ()) if name != argument]
    if required:
        own_schema["required"] = required
    else:
        own_schema.pop("required", None)
    return own_schema


class SessionList(list[SessionInfo]):
    """A list of sessions. `next_cursor` leads to the sessions after it; None: there are none."""

    def __init__(
        self, sessions: Iterable[SessionInfo] = (), next_cursor: str | None = None
    ) -> None:
        super().__init__(sessions)
        self.next_cursor = next_cursor


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a session: the digest made from its history, and the last summary that a client wrote."""

    digest: JSON
    client_summary: JSON | None
    problem: str | None = None
    """Why the command of the server wrote no summary; None unless it was asked to."""

    @property
    def text(self) -> str:
        return (self.client_summary or self.digest)["text"]

    @property
    def topics(self) -> list[str]:
        return (self.client_summary or self.digest)["topics"]


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """One part of a resource: text, or bytes."""

    uri: str
    mime_type: str | None
    text: str | None
    data: bytes | None

    @classmethod
    def of(cls, part: JSON) -> ResourceContent:
        blob = part.get("blob")
        data = None if blob is None else base64.b64decode(blob)
        return cls(part["uri"], part.get("mimeType"), part.get("text"), data)


__all__ = [
    "CallResult",
    "Image",
    "ResourceContent",
    "SessionBrief",
    "SessionList",
    "Summary",
    "Tool",
]
