"""The toolset `history`: read, annotate and summarize the history of a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from ...sessions.actions.runs import RunStatus
from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.records import HistoryFilter, JournalKind, SessionRecord
from ...sessions.registry import Registry
from ...sessions.validation import Plain
from .own_tool import Outcome, OwnTool, ToolContext, parse_time
from .results import History, HistoryEntry
from .session_arguments import SessionArguments
from .session_tools import summary


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Text = Annotated[Plain, Field(min_length=1, max_length=256)]
Texts = Annotated[list[Text], BeforeValidator(_as_list), Field(max_length=100)]
Kind = Literal["call", "transition", "message", "state", "run", "control", "compacted"]
Role = Annotated[Plain, Field(min_length=1, max_length=64, description="Such as user")]
RunId = Annotated[
    Plain,
    Field(min_length=1, max_length=128, description="A run, by a name of yours"),
]


class HistoryArguments(SessionArguments):
    last: Annotated[int, Field(ge=0, le=1000, description="How many, the newest")] = 50
    kind: Annotated[
        Annotated[list[Kind], BeforeValidator(_as_list)] | None,
        Field(description="Only of these kinds; so with the others"),
    ] = None
    tool: Texts | None = None
    skip_tools: Texts | None = None
    status: Annotated[
        Texts | None,
        Field(
            description="Calls are ok, error, cancelled, started, or have the code of their error"
        ),
    ] = None
    run: Texts | None = None
    last_runs: Annotated[int | None, Field(ge=0, le=100, description="So many runs")] = None
    skip_run_status: Annotated[Texts | None, Field(description="Without runs that are so")] = None
    role: Texts | None = None
    skip_roles: Texts | None = None
    since: Annotated[str | None, Field(max_length=64, description="ISO 8601")] = None
    until: Annotated[str | None, Field(max_length=64)] = None
    seq: Annotated[
        int | None,
        Field(ge=1, le=2**62, description="One entry"),
        WithJsonSchema({"type": "integer"}),
    ] = None
    cursor: Annotated[
        str | None, Field(max_length=64, description="next_cursor of the newer page")
    ] = None


class NoteArguments(SessionArguments):
    role: Role
    content: Annotated[str, Field(min_length=1, description="Its text")]
    run_id: RunId | None = None


class RunArguments(SessionArguments):
    run_id: RunId
    status: Annotated[RunStatus, Field(description="running: it begins")]
    error: Annotated[
        str | None, Field(min_length=1, max_length=20_000, description="Why it failed")
    ] = None


class SummaryArguments(SessionArguments):
    text: Annotated[
        str | None,
        Field(min_length=1, max_length=20_000, description="Your summary"),
    ] = None
    topics: Annotated[
        Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=50)]
        | None,
        Field(description="Topics of text"),
    ] = None
    refresh: Annotated[bool, Field(description="Have the configured command write it now")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHistory(History):
    """A page of the history of one session."""

    session_id: str


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """An entry that was added to a history."""

    session_id: str
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """The last summary that a client wrote, and how much the history has grown since."""

    text: str
    topics: list[str]
    updated_at: str
    source: str
    through_seq: int
    entries_since: int


@dataclass(frozen=True, slots=True)
class Digest:
    """The summary that the server made from the history; it has further members with counts."""

    source: str
    text: str
    topics: list[str]
    updated_at: str | None
    through_seq: int


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Both summaries of a session. `problem` says why a command wrote no summary."""

    session_id: str
    digest: Digest
    summary: WrittenSummary | None = None
    problem: str | None = None


class HistoryTools:
    """The tools of this toolset for one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        if "history" not in set(toolsets):
            return []
        return [self._history_tool(), self._note_tool(), self._run_tool(), self._summary_tool()]

    def _history_tool(self) -> OwnTool:
        return OwnTool(
            "session_history",
            "Read the history",
            "Read what was done and said in a session, the newest last: calls with arguments and the beginning of the "
            "result, messages, changes of status. Arguments select entries. Does not count as use.",
            HistoryArguments,
            SessionHistory,
            self._history,
            read_only=True,
            toolset="history",
        )

    def _note_tool(self) -> OwnTool:
        return OwnTool(
            "session_note",
            "Add a message",
            "Add a message to the history of a session: what was said, or should be known later.",
            NoteArguments,
            WrittenEntry,
            self._note,
            toolset="history",
        )

    def _run_tool(self) -> OwnTool:
        return OwnTool(
            "session_run",
            "Begin or end a run",
            "Note that a run of a session begins or ends. A run groups calls, messages and changes of the state.",
            RunArguments,
            WrittenEntry,
            self._run,
            toolset="history",
        )

    def _summary_tool(self) -> OwnTool:
        return OwnTool(
            "session_summary",
            "Sum up a session",
            "Read what was done in a session: the summary written last, and a digest of its history (calls, errors, open "
            "pages, state). With text: keep your own summary for later.",
            SummaryArguments,
            SessionSummary,
            self._summary,
            idempotent=True,
            toolset="history",
            pinned="always",
        )

    async def _history(self, context: ToolContext, arguments: HistoryArguments) -> Outcome:
        history, namespace = self._registry.history, context.namespace
        if arguments.seq is not None:
            record, entry = await history.entry(
                context.principal, arguments.session_id, arguments.seq, namespace=namespace
            )
            return await self._outcome(context, record, entries=[entry], next_cursor=None)
        history_filter = HistoryFilter(
            kinds=None
            if arguments.kind is None
            else [JournalKind(kind) for kind in arguments.kind],
            tools=arguments.tool,
            skip_tools=arguments.skip_tools,
            statuses=arguments.status,
            runs=arguments.run,
            last_runs=arguments.last_runs,
            skip_run_statuses=arguments.skip_run_status,
            roles=arguments.role,
            skip_roles=arguments.skip_roles,
            since=parse_time(arguments.since, "since"),
            until=parse_time(arguments.until, "until"),
            limit=arguments.last,
        )
        record, entries, cursor = await history.page(
            context.principal,
            arguments.session_id,
            history_filter,
            namespace=namespace,
            cursor=arguments.cursor,
        )
        return await self._outcome(context, record, entries=entries, next_cursor=cursor)

    async def _note(self, context: ToolContext, arguments: NoteArguments) -> Outcome:
        session, entry = await self._registry.history.note(
            context.principal,
            arguments.session_id,
            arguments.role,
            arguments.content,
            arguments.run_id or context.run,
        )
        return Outcome({"session_id": session.id, "entry": entry}, session.summary())

    async def _run(self, context: ToolContext, arguments: RunArguments) -> Outcome:
        session, entry = await self._registry.runs.write(
            context.principal,
            arguments.session_id,
            arguments.run_id,
            arguments.status,
            arguments.error,
        )
        return Outcome({"session_id": session.id, "entry": entry}, session.summary())

    async def _summary(self, context: ToolContext, arguments: SummaryArguments) -> Outcome:
        history = self._registry.history
        if arguments.text is not None:
            await history.write_summary(
                context.principal, arguments.session_id, arguments.text, arguments.topics or []
            )
        elif arguments.topics is not None:
            raise InvalidArgument("topics: go together with text.")
        problem: str | None = None
        if arguments.refresh:
            problem = await self._registry.summaries.write_by_model(
                context.principal, arguments.session_id, context.namespace
            )
        record, summaries = await history.summary(
            context.principal, arguments.session_id, namespace=context.namespace
        )
        if problem is not None:
            summaries["problem"] = problem
        return await self._outcome(context, record, **summaries)

    async def _outcome(
        self, context: ToolContext, record: SessionRecord, **content: Any
    ) -> Outcome:
        info = await self._registry.info(context.principal, record.id)
        result: JSON = {"session_id": record.id, **content}
        return Outcome(result, summary(info))
