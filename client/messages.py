"""The conversation of a session as messages for a model, and as one text for a prompt.

Messages have the form of the chat API of OpenAI, which LangChain and others read as well. A token is counted as four
characters.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ..sessions.journal.model_answer import ModelAnswer
from .results import object_of

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON
    from ..tools.own.results import History, HistoryEntry
    from .options import MessageOptions
    from .results import Summary
    from .state import State

Message: TypeAlias = dict[str, Any]
"""`role` and `content`; with `tool_calls` of an assistant, or the `tool_call_id` of a result."""

Content: TypeAlias = str | Sequence[Mapping[str, Any]]
"""A text, or blocks such as `{"type": "text", "text": ...}`."""

SummaryAnswer: TypeAlias = str | Mapping[str, Any]
"""A summary, or `{"summary": ..., "topics": [...], "name": ...}`, of which only the first is required."""
SummaryFunction: TypeAlias = Callable[[list[Message]], Awaitable[SummaryAnswer]]
"""Sums up messages."""

MAX_TOKENS: Final = 16_000
LAST_RUNS: Final = 3
"""Runs of a context."""
CHARACTERS: Final = 4
"""Characters of a token."""
LEAST: Final = 200
"""Characters for which it pays to show the beginning of a message."""
PAGE: Final = 200
"""Entries that are read at once."""
UNFINISHED: Final = ("started", "input_required")
"""Statuses of calls without a result."""


class MessageSource(Protocol):
    """A session, as far as messages are made of it."""

    state: State

    async def history(
        self,
        last: int = 50,
        *,
        kind: str | Sequence[str] | None = None,
        last_runs: int | None = None,
        skip_run_status: str | Sequence[str] | None = None,
        cursor: str | None = None,
    ) -> History: ...

    async def summary(self) -> Summary: ...


async def messages(
    session: MessageSource,
    *,
    last_runs: int | None = None,
    roles: str | Sequence[str] | None = None,
    skip_status: str | Sequence[str] = (),
    tools: bool = True,
    max_tokens: int | None,
) -> list[Message]:
    """Return messages of a session, the oldest first; see Session.messages."""
    wanted = None if roles is None else {roles} if isinstance(roles, str) else set(roles)
    skipped = [skip_status] if isinstance(skip_status, str) else list(skip_status)
    tools = tools and (wanted is None or not wanted.isdisjoint(("assistant", "tool")))
    room = None if max_tokens is None else max_tokens * CHARACTERS
    found: list[list[Message]] = []
    cursor: str | None = None
    while True:
        page = await session.history(
            PAGE,
            kind=["message", "call"] if tools else "message",
            last_runs=last_runs,
            skip_run_status=skipped or None,
            cursor=cursor,
        )
        for entry in reversed(page.entries):
            group = _messages_of(entry, wanted, tools)
            if not group:
                continue
            if room is not None:
                size = sum(map(_size, group))
                if size > room:
                    found += [_cut_group(group, entry, room)] if room >= LEAST or not found else []
                    return _in_order(found)
                room -= size
            found.append(group)
        cursor = page.next_cursor
        if cursor is None:
            return _in_order(found)


def _in_order(groups: list[list[Message]]) -> list[Message]:
    return [
        message
        if message["role"] == "tool"
        else {**message, "content": _content_of(message["content"])}
        for group in reversed(groups)
        for message in group
    ]


def text_of(content: Content) -> str:
    """Return content as it is stored: a text, or blocks as JSON."""
    if isinstance(content, str):
        return content
    return json.dumps([dict(block) for block in content], ensure_ascii=False)


def _content_of(text: str) -> str | list[JSON]:
    """Return stored content: the blocks, if it is those."""
    if not text.startswith("[{"):
        return text
    try:
        blocks: Any = json.loads(text)
    except ValueError:
        return text
    return (
        blocks if all(isinstance(object_of(block).get("type"), str) for block in blocks) else text
    )


def _messages_of(entry: HistoryEntry, roles: Collection[str] | None, tools: bool) -> list[Message]:
    """Return the message of an entry, or the two of a call that has ended or of a result that a program noted."""
    if entry.kind == "message" and entry.role != "tool":
        if roles is not None and entry.role not in roles:
            return []
        return [{"role": entry.role, "content": entry.content or ""}]
    if entry.status in UNFINISHED or (entry.kind == "message" and not tools):
        return []
    is_noted = entry.kind == "message"
    key = f"call_{entry.seq}"
    arguments = "{}" if is_noted else json.dumps(entry.arguments, ensure_ascii=False)
    # Chat APIs refuse a result without its call.
    function = {"name": entry.tool or "tool", "arguments": arguments}
    call = {"id": key, "type": "function", "function": function}
    result = (entry.content or "") if is_noted else _result_text(entry)
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": key, "content": result},
    ]


def _result_text(entry: HistoryEntry) -> str:
    """Return the kept part of a result, with a note where something was cut."""
    result = object_of(entry.result)
    if not result:
        return f"{entry.status}: {entry.error}" if entry.error else f"[{entry.status}]"
    if "content" not in result:
        return _cut_note(str(result.get("truncated", "")), "the result was not kept completely")
    parts: list[str] = []
    blocks: list[Any] = result["content"]
    files = [str(uri) for block in blocks if (uri := object_of(block).get("uri"))]
    whole = f"the whole is the file {files[0]}" if files else "the whole was not kept"
    cut = object_of(result.get("cut"))
    for number, block in enumerate(blocks):
        total = cut.get(str(number))
        if isinstance(block, str):
            note = None if total is None else f"{len(block)} of {total} characters; {whole}"
            parts.append(block if note is None else _cut_note(block, note))
        else:
            parts.append(
                f"[{' '.join(str(value) for value in object_of(block).values() if value)}]"
            )
    if result.get("left_out"):
        parts.append(f"[{result['left_out']} more parts were not kept]")
    return "\n".join(parts)


def _cut_note(text: str, note: str) -> str:
    return f"{text}... [cut: {note}]"


def _size(message: Message) -> int:
    """Return the characters of a message, its tool calls included."""
    calls = (call["function"] for call in message.get("tool_calls", ()))
    return len(message["content"]) + sum(
        len(call["name"]) + len(call["arguments"]) for call in calls
    )


def _cut_group(group: list[Message], entry: HistoryEntry, room: int) -> list[Message]:
    """Return the message, or the two of a call, with as much of the content as there is room for; nothing without room."""
    room -= sum(map(_size, group[:-1]))
    last = group[-1]
    content = shorten(last["content"], room, f"the whole is entry {entry.seq} of session_history")
    return [*group[:-1], {**last, "content": content}] if content else []


def shorten(text: str, room: int, whole: str) -> str:
    """Return a text of at most `room` characters, a longer one cut, with a note; nothing without room for the note."""
    if len(text) <= room:
        return text
    beginning = text[
        : max(0, room - len(_cut_note("", f"{len(text)} of {len(text)} characters; {whole}")))
    ]
    shown = _cut_note(beginning, f"{len(beginning)} of {len(text)} characters; {whole}")
    return shown if len(shown) <= room else ""


async def context(
    session: MessageSource,
    *,
    state_tokens: int,
    summary_tokens: int,
    message_tokens: int,
    options: MessageOptions,
) -> str:
    """Return a text for a prompt; see Session.context."""
    parts: list[str] = []
    if state_tokens:
        state = await session.state.read()
        text = json.dumps(state.value, ensure_ascii=False) if state.value else ""
        text = shorten(text, state_tokens * CHARACTERS, "state_get returns the whole")
        parts += [f"State (version {state.version}):\n{text}"] if text else []
    if summary_tokens:
        text = (await session.summary()).text
        text = shorten(text, summary_tokens * CHARACTERS, "session_summary returns the whole")
        parts += [f"Summary:\n{text}"] if text else []
    if message_tokens:
        found: list[Message] = []
        for runs in (options.get("last_runs", LAST_RUNS), None):
            selection: MessageOptions = {**options, "last_runs": runs}
            found = await messages(session, max_tokens=message_tokens, **selection)
            if found:
                break
        text = "\n".join(map(_line, found))
        parts += [f"Conversation:\n{text}"] if text else []
    return "\n\n".join(parts)


def _line(message: Message) -> str:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    if calls:
        return "\n".join(f"call {call['name']} {call['arguments']}" for call in calls)
    role = "result" if message["role"] == "tool" else message["role"]
    return f"{role}: {text_of(message['content'])}"


def summary_fields(answer: SummaryAnswer) -> tuple[str, list[str], str | None]:
    """Return text, topics and name of a summary, cut and cleaned to what can be stored.

    Raises:
        TypeError: it has no text.
    """
    fields = dict(answer) if isinstance(answer, Mapping) else {"summary": answer}
    try:
        found = ModelAnswer.of(fields)
    except ValueError:
        raise TypeError('the function should return a text, or one under "summary"') from None
    return found.text, found.topics, found.name


__all__ = [
    "MAX_TOKENS",
    "Content",
    "Message",
    "SummaryAnswer",
    "SummaryFunction",
    "context",
    "messages",
    "shorten",
    "summary_fields",
    "text_of",
]
