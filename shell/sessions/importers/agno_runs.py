"""Runs of agno as entries of a journal: messages, and calls of tools with their results."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from ....sessions.errors import OutcomeUnknown
from ....sessions.json_codec import JSON
from ....sessions.validation import METADATA_LIMIT
from .foreign import drop_largest

TEXT: Final = 60_000
"""Characters kept of a message, or of the result of a tool."""
SYSTEM_ROLES: Final = ("system", "developer")
STATUSES: Final = {
    "PENDING": "running",
    "RUNNING": "running",
    "PAUSED": "running",
    "ERROR": "error",
    "CANCELLED": "cancelled",
    # Another run took its place.
    "REGENERATED": "cancelled",
}
"""The statuses of runs here, by those of agno; all others are `completed`."""
ERROR_LENGTH: Final = 1000
SERVICE: Final = "agno"
"""The service of imported calls, so that they differ from those of services here."""
MEDIA: Final = (
    *("images", "videos", "audio", "audios", "files", "response_audio"),
    *("audio_output", "image_output", "video_output", "file_output"),
)
READ: Final = {
    *("run_id", "session_id", "created_at", "messages", "content", "input", "tools"),
    *("member_responses", "from_history", *MEDIA),
}
"""Fields of a run that entries have, or that are left out by name."""
COMMON: Final = (
    *(("status", each) for each in ("COMPLETED", "RUNNING", "ERROR", "CANCELLED")),
    ("content_type", "str"),
)
"""Fields of a run with the values that entries imply."""
EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
READ_OF_CALL: Final = {"id", "call_id", "type", "function", "name", "arguments"}
READ_OF_TOOL: Final = {
    *("tool_call_id", "tool_name", "tool_args", "tool_call_error", "result", "metrics"),
    *("created_at", "stop_after_tool_call"),
}
READ_OF_MESSAGE: Final = {
    *("role", "content", "tool_call_id", "tool_calls", "tool_name", "tool_args", "created_at"),
    *("tool_call_error", "from_history", "add_to_agent_memory", "stop_after_tool_call"),
    *("id", "metrics", *MEDIA),
}
"""Fields of a message that entries have, or that no import keeps: docs/use/coming-from.md names those."""


class JournalOfRuns:
    """The entries of the runs of one session, in their order."""

    def __init__(self, created_at: float) -> None:
        self.entries: list[JSON] = []
        self.left_out: dict[str, int] = {}
        """Counts of parts that a journal cannot hold."""
        self._last_at = created_at
        self._instructions: str | None = None

    def add(self, run: JSON) -> None:
        """Add the messages and calls of a run. Messages that it repeats from earlier runs are in the journal already.

        Raises:
            TypeError, ValueError, LookupError, AttributeError, ArithmeticError: it is not as agno writes it; nothing of it
                was added.
        """
        before = len(self.entries), self._last_at, self._instructions, dict(self.left_out)
        try:
            self._add(run)
            # A number or a text that no document holds would refuse the whole session.
            json.dumps(self.entries[before[0] :], allow_nan=False)
        except BaseException:
            count, self._last_at, self._instructions, self.left_out = before
            del self.entries[count:]
            raise

    def _add(self, run: JSON) -> None:
        if run.get("parent_run_id"):
            # agno leaves the runs of a team's members out of its histories as well.
            self.leave_out("runs of team members")
            return
        run_id = str(run.get("run_id") or "") or None
        self.leave_out_media(run)
        if run.get("member_responses"):
            self.leave_out("member_responses of runs", len(run["member_responses"]))
        for tool in run.get("tools") or ():
            self._leave_out_fields(tool, READ_OF_TOOL, "tools")
        self._last_at = max(self._last_at, float(run.get("created_at") or 0))
        messages = _messages_of(run)
        if run_id is not None:
            self._begin(run_id, run, messages)
        fresh = [part for each in messages if not each.get("from_history") for part in _parts(each)]
        results = _results_of(fresh)
        answers = {id(each) for each in results.values()}
        for message in fresh:
            self._add_message(run_id, message, results, is_answer=id(message) in answers)

    def _begin(self, run_id: str, run: JSON, messages: list[JSON]) -> None:
        status = STATUSES.get(str(run.get("status")).upper(), "completed")
        entry: JSON = {
            "kind": "run",
            "run": run_id,
            "status": status,
            "started_at": self._last_at,
        }
        if status != "running":
            entry["ended_at"] = max([self._last_at, *map(self._time, messages)])
        if status == "error":
            entry["error"] = _text_of(run.get("content"))[:ERROR_LENGTH] or None
        others = {
            key: value
            for key, value in run.items()
            if value not in EMPTY and key not in READ and (key, value) not in COMMON
        }
        said = [_text_of(message.get("content")) for message in messages]
        said_once = {"input": _input_of(run), "content": run.get("content")}
        others |= {
            key: value
            for key, value in said_once.items()
            if not any(_text_of(value) in text for text in said)
        }
        for key, size in drop_largest([others], METADATA_LIMIT):
            self.leave_out(f"{key} of a run, {size} bytes")
        if others:
            entry["request"] = others
        self.entries.append(entry)

    def _add_message(
        self, run: str | None, message: JSON, results: dict[int, JSON], *, is_answer: bool
    ) -> None:
        role, at = str(message.get("role") or "assistant"), self._time(message)
        self.leave_out_media(message)
        self._leave_out_fields(message, READ_OF_MESSAGE, "messages")
        if is_answer:
            return
        if role in SYSTEM_ROLES:
            # Each run repeats it.
            text = _text_of(message.get("content"))
            if text == self._instructions:
                return
            self._instructions = text
        self._message(run, role, message.get("content"), at)
        for call in message.get("tool_calls") or ():
            self._leave_out_fields(call, READ_OF_CALL, "calls")
            self._call(run, call, results.get(id(call)), at)

    def _message(self, run: str | None, role: str, content: object, at: float) -> None:
        text = self._cut(_text_of(content))
        if text:
            self.entries.append(
                {
                    "kind": "message",
                    "run": run,
                    "role": role,
                    "started_at": at,
                    "request": {"content": text},
                }
            )

    def _call(self, run: str | None, call: JSON, result: JSON | None, at: float) -> None:
        function = _function_of(call)
        failed = bool(result and result.get("tool_call_error"))
        entry: JSON = {
            "kind": "call",
            "run": run,
            "service": SERVICE,
            "tool": str(function.get("name")),
            "status": OutcomeUnknown.code if result is None else "error" if failed else "ok",
            "started_at": at,
            "ended_at": None if result is None else self._time(result),
            "request": self._arguments(function.get("arguments")),
        }
        if result is not None:
            text = _text_of(result.get("content"))
            cut = {"cut": {"0": len(text)}} if len(text) > TEXT else {}
            entry["result"] = {"content": [self._cut(text)], "is_error": failed, **cut}
        self.entries.append(entry)

    def _arguments(self, value: object) -> object:
        try:
            arguments: object = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            # A model wrote no JSON.
            arguments = {"arguments": value}
        text = json.dumps(arguments)
        return (
            arguments if len(text) <= TEXT else {"truncated": self._cut(text), "bytes": len(text)}
        )

    def _cut(self, text: str) -> str:
        if len(text) > TEXT:
            self.leave_out("ends of long texts")
        return text[:TEXT]

    def _time(self, message: JSON) -> float:
        """Return when a message was written. agno 2 gives messages the time of the last save."""
        return float(message.get("created_at") or self._last_at)

    def leave_out_media(self, holder: JSON) -> None:
        """Count the pictures, sounds and files that a message or a session has."""
        for kind in MEDIA:
            value: Any = holder.get(kind)
            if value:
                self.leave_out("media", len(value) if isinstance(value, list) else 1)  # pyright: ignore[reportUnknownArgumentType]

    def _leave_out_fields(self, holder: JSON, read: set[str], holders: str) -> None:
        for key, value in holder.items():
            if value and key not in read:
                self.leave_out(f"{key} of {holders}")

    def leave_out(self, part: str, count: int = 1) -> None:
        """Count a part that is not imported."""
        self.left_out[part] = self.left_out.get(part, 0) + count


def _messages_of(run: JSON) -> list[JSON]:
    """Return the messages of a run, with those that it does not store but that its input, content and tools tell."""
    messages: list[JSON] = list(run.get("messages") or ())
    if not messages:
        given = run.get("input")
        media: JSON = {}
        if isinstance(given, dict):
            media = {key: value for key, value in cast("JSON", given).items() if key in MEDIA}
        messages = [
            {"role": "user", "content": _input_of(run), **media},
            {"role": "assistant", "content": run.get("content")},
        ]
    called = {call.get("id") for each in messages for call in each.get("tool_calls") or ()}
    tools: list[JSON] = [
        each for each in run.get("tools") or () if each.get("tool_call_id") not in called
    ]
    calls = [
        {
            "id": each.get("tool_call_id"),
            "function": {"name": each.get("tool_name"), "arguments": each.get("tool_args")},
        }
        for each in tools
    ]
    results = [
        {
            "role": "tool",
            **{key: value for key, value in each.items() if key in READ_OF_MESSAGE},
            "content": each["result"],
        }
        for each in tools
        if each.get("result") is not None
    ]
    if tools:
        asked: JSON = {"role": "assistant", "tool_calls": calls}
        messages[-1:-1] = [{**asked, "created_at": tools[0].get("created_at")}, *results]
    return messages


def _function_of(call: JSON) -> JSON:
    return call.get("function") or call


def _parts(message: JSON) -> list[JSON]:
    """Return a message as it is, or each result of one in which Gemini of agno 2 has those of several calls."""
    if message.get("role") != "tool" or not message.get("tool_calls"):
        return [message]
    return [{**message, "tool_calls": None, **each} for each in message["tool_calls"]]


def _results_of(messages: list[JSON]) -> dict[int, JSON]:
    """Return the messages that answer calls, by the identity of the call. A result without the id of a call, as models of
    agno 2 write it, answers the first call of its tool that has no answer."""
    waiting: list[JSON] = []
    results: dict[int, JSON] = {}
    for message in messages:
        id_, tool = message.get("tool_call_id"), message.get("tool_name")
        for index, call in enumerate(waiting):
            name = _function_of(call).get("name")
            if message.get("role") == "tool" and (
                call.get("id") == id_ if id_ else tool in (None, name)
            ):
                results[id(waiting.pop(index))] = message
                break
        waiting += message.get("tool_calls") or ()
    return results


def _input_of(run: JSON) -> object:
    value: Any = run.get("input")
    return value.get("input_content") if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _text_of(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return json.dumps(content, ensure_ascii=False)
