"""The handle to one session."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Unpack
from urllib.parse import quote

from ..tools.own.results import (
    ForkResult,
    History,
    HistoryEntry,
    MergeResult,
    SessionInfo,
    parse_result,
)
from .blocks import Current, create_or_undo, end_sessions
from .errors import (
    NameTaken,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionNotFound,
    ToolFailed,
)
from .logins import lend
from .messages import (
    MAX_TOKENS,
    Content,
    Message,
    SummaryFunction,
    context,
    messages,
    summary_fields,
    text_of,
)
from .options import merge_arguments
from .results import CallResult, ResourceContent, SessionBrief, Summary, Tool, select_tools
from .runs import Run, current_run_id
from .state import State
from .tasks import Task, start_task

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

    from ..sessions.json_codec import JSON
    from .langchain_tool import Handler
    from .options import CallOptions, MessageOptions
    from .protocol.calls import ToolCalls

MergePolicy: TypeAlias = Literal["last_wins", "first_wins", "fail"]
Words: TypeAlias = str | Sequence[str]

logger = logging.getLogger("statehold.client")
current_sessions: Final[Current[Session]] = Current("statehold.client.session")


class Session:
    """A handle to a session. Any task may use it, and several handles may lead to the same session.

    `status`, `generation` and `expires_at` are from the server's last answer; info() asks again. Dropping a handle does
    not end the session: close() does, or the end of the block that made it.
    """

    id: str
    namespace: str
    attached: bool
    """Whether the session existed before: found by its name or id, not created by this handle."""
    last_error: SessionError | None
    """The error of the last failed call."""

    def __init__(
        self,
        caller: ToolCalls,
        brief: SessionBrief,
        *,
        scope: object,
        attached: bool = False,
        namespace: str = "",
    ) -> None:
        self._caller = caller
        self._scope = scope
        self._brief = brief
        self.id = brief.id
        self.namespace = namespace
        self.attached = attached
        self.last_error = None
        self.state = State(self)
        self.children: list[Session] | None = None
        """Children that end together with the block around; None outside of one."""

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {self.name!r}"
        return f"<Session {self.id}{name} {self.status}>"

    @property
    def name(self) -> str | None:
        return self._brief.name

    @property
    def status(self) -> str:
        return self._brief.status

    @property
    def generation(self) -> int:
        """A counter that rises whenever one of its live connections was replaced."""
        return self._brief.generation

    @property
    def expires_at(self) -> str | None:
        return self._brief.expires_at

    @property
    def is_open(self) -> bool:
        return self.status not in ("closing", "closed")

    @contextmanager
    def use(self) -> Generator[Session]:
        """Make it the current session of this task inside of a `with` block, which leaves it as it is."""
        entry = current_sessions.enter(self._scope, self)
        try:
            yield self
        finally:
            current_sessions.leave(entry)

    def login(self, name: str, *, wait_seconds: int = 10) -> AbstractAsyncContextManager[None]:
        """Return a block in which the session has a login of browsers; see lend()."""
        return lend(self.call, name, wait_seconds)

    def run(self, run_id: str | None = None) -> Run:
        """Return a block that is a run: all that is done in it has its id in the history; without one, a new one."""
        return Run(self, run_id)

    async def call(
        self,
        tool: str,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        run_id: str | None = None,
        **arguments: Any,
    ) -> CallResult:
        """Call a tool in this session. Arguments are keywords, or a mapping, or both.

        `run_id` is the run of the call in the history; by default that of the block of run() around. A tool that has an
        argument of this name gets it in the mapping.

        Raises:
            ToolFailed: the tool answered with an error.
            OutcomeUnknown: the connection broke, and it is unknown whether the call ran.
            SessionError: everything else, see statehold.client.errors.
        """
        arguments = merge_arguments(mapping, arguments)
        return await self.call_tool(tool, arguments, run_id=run_id)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> CallResult:
        """Call a tool, with options for the call.

        `operation_id`: the server runs at most one call of an id in a session, and returns its result to all others, of any
        caller. Without one each call gets a new id. `run_id` is the run of the call in the history; by default that of the
        block of run() around. With `check=False` an error of the tool is returned, not raised.
        """
        if options.get("run_id") is None:
            options["run_id"] = current_run_id(self.id)
        try:
            result = await self._caller.call(self.id, name, arguments or {}, **options)
        except SessionError as error:
            self.record_error(error, name)
            raise
        self.record_result(result)
        return result

    async def start(
        self,
        tool: str,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        run_id: str | None = None,
        **arguments: Any,
    ) -> Task:
        """Start a call that the server goes on with, and return it as a task, whose result() waits for its end.

        Arguments and `run_id` are those of call(). A start that got no answer is repeated; the call runs at most once. The
        task of a call that ended at once, or that cannot go on without its caller, has ended.

        Raises:
            SessionError: the call was not started, as call() raises it.
        """
        arguments = merge_arguments(mapping, arguments)
        run_id = current_run_id(self.id) if run_id is None else run_id
        return await start_task(self._caller, self, tool, arguments, run_id)

    def task(self, id: str) -> Task:
        """Return the task with this id, which start() of any program gave. Sends nothing."""
        return Task(self._caller, self, id)

    async def call_own(self, tool: str, arguments: Mapping[str, Any] | None = None) -> JSON:
        """Call one of Statehold's own tools about this session and return its structured content."""
        result = await self.call_tool(tool, arguments)
        return result.structured_content or {}

    async def _call_for_info(self, tool: str, **arguments: Any) -> SessionInfo:
        arguments = {name: value for name, value in arguments.items() if value is not None}
        result = await self.call_tool(tool, arguments)
        content = {**(result.structured_content or {}), "notice": result.notice}
        return parse_result(SessionInfo, content)

    def record_result(self, result: CallResult) -> None:
        brief = result.session
        if brief is not None and brief.id == self.id:
            self._brief = brief

    def record_error(self, error: SessionError, tool: str = "") -> None:
        self.last_error = error
        if isinstance(error, SessionClosed | SessionExpired | SessionNotFound):
            # The closed session may be a source of a merge, too.
            if tool != "session_merge" or error.session_id == self.id:
                self.mark_closed()
        elif isinstance(error, ToolFailed):
            self.record_result(error.result)

    def mark_closed(self) -> None:
        """Mark the session as closed. Sends nothing."""
        self._caller.forget(self.id)
        brief = self._brief
        self._brief = SessionBrief(
            self.id, brief.name, "closed", brief.generation, brief.expires_at
        )

    async def info(self) -> SessionInfo:
        """Ask the server for everything about it. Looking does not count as use."""
        return await self._call_for_info("session_info")

    async def list_tools(self, *, names: Collection[str] | None = None) -> list[Tool]:
        """Return the tools of the services that it uses; with `names` those tools, also Statehold's own.

        Raises:
            ValueError: there is no tool of one of the names.
        """
        if names is not None:
            return select_tools(await self._caller.list_tools(), names)
        services = {service.service for service in (await self.info()).services}
        return [tool for tool in await self._caller.list_tools() if tool.service in services]

    async def langchain_tools(
        self,
        *,
        names: Collection[str] | None = None,
        images: bool = True,
        handle_tool_error: Handler | None = None,
        read_timeout_seconds: float | None = None,
    ) -> list[StructuredTool]:
        """Return the tools of its services for LangChain, bound to it: no model sees a session_id.

        Needs the extra `langchain`; statehold.client.integrations.langchain says what the options are.
        """
        from .integrations.langchain import langchain_tools

        return await langchain_tools(
            self,
            names=names,
            images=images,
            handle_tool_error=handle_tool_error,
            read_timeout_seconds=read_timeout_seconds,
        )

    async def read_resource(self, uri: str, *, service: str | None = None) -> list[ResourceContent]:
        """Read a resource: `session://...` as in a result, or the URI that a service has for it, with `service`."""
        if service is not None:
            safe = "" if ":" in uri else "/"
            uri = f"session://{self.id}/{quote(service, safe='')}/{quote(uri, safe=safe)}"
        elif "://" not in uri:
            uri = f"session://{self.id}/{uri}"
        try:
            return await self._caller.read_resource(uri)
        except SessionError as error:
            self.record_error(error)
            raise

    async def pause(self) -> SessionInfo:
        """Save its services' snapshots and close their connections. The next call resumes the session."""
        return await self._call_for_info("session_pause")

    async def resume(self) -> SessionInfo:
        return await self._call_for_info("session_resume")

    async def extend(self, seconds: float = 3600.0) -> SessionInfo:
        """Extend its lifetime; negative seconds shorten it."""
        return await self._call_for_info("session_extend", seconds=seconds)

    async def restart(self, services: Sequence[str] | None = None) -> SessionInfo:
        """Replace its live connections, all or those of some services; their state in memory is lost."""
        return await self._call_for_info(
            "session_restart", services=None if services is None else list(services)
        )

    async def rename(
        self, name: str | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> SessionInfo:
        """Change its name, or merge values into its metadata. With neither it loses its name."""
        return await self._call_for_info(
            "session_rename", name=name, metadata=None if metadata is None else dict(metadata)
        )

    async def bind(self, service: str) -> SessionInfo:
        """Let it use another service. Binding a bound service does nothing."""
        return await self._call_for_info("session_bind", service=service)

    async def unbind(self, service: str) -> SessionInfo:
        """End its use of a service; the service's snapshot is deleted."""
        return await self._call_for_info("session_unbind", service=service)

    async def close(self, *, force: bool = False) -> None:
        """Close it and its connections; `force` does not wait for running calls. May be called twice."""
        await self.call_own("session_close", {"force": True} if force else {})
        self.mark_closed()

    async def delete(self, *, force: bool = False) -> None:
        """Close it and delete all its stored data. Needs the toolset `admin`."""
        await self.call_own("session_delete", {"force": True} if force else {})
        self.mark_closed()

    async def export(self, *, secrets: bool = False) -> JSON:
        """Return all its stored data as one document, for Client.import_session. Needs the toolset `admin`."""
        answer = await self.call_own("session_export", {"secrets": True} if secrets else {})
        return answer["document"]

    async def history(
        self,
        last: int = 50,
        *,
        kind: Words | None = None,
        tool: Words | None = None,
        skip_tools: Words | None = None,
        status: Words | None = None,
        run: Words | None = None,
        last_runs: int | None = None,
        skip_run_status: Words | None = None,
        role: Words | None = None,
        skip_roles: Words | None = None,
        since: str | None = None,
        until: str | None = None,
        cursor: str | None = None,
    ) -> History:
        """Return the newest matching entries: calls, messages, runs, changes of the state in them, changes of its status."""
        filters = {
            "kind": kind,
            "tool": tool,
            "skip_tools": skip_tools,
            "status": status,
            "run": run,
            "last_runs": last_runs,
            "skip_run_status": skip_run_status,
            "role": role,
            "skip_roles": skip_roles,
            "since": since,
            "until": until,
            "cursor": cursor,
        }
        arguments: JSON = {"last": last}
        for name, value in filters.items():
            if value is not None:
                arguments[name] = value if isinstance(value, str | int) else list(value)
        return parse_result(History, await self.call_own("session_history", arguments))

    async def messages(
        self, *, max_tokens: int | None = MAX_TOKENS, **options: Unpack[MessageOptions]
    ) -> list[Message]:
        """Return the conversation as a model takes it, the oldest message first: messages of its history, and its calls.

        A call is a message of the assistant with `tool_calls`, followed by that of its result. The newest messages that have
        at most `max_tokens` (of four characters) are returned, all with None. A text that was cut says so, and where the
        whole is.
        """
        return await messages(self, max_tokens=max_tokens, **options)

    async def context(
        self,
        *,
        state_tokens: int = 1000,
        summary_tokens: int = 1000,
        message_tokens: int = 4000,
        **options: Unpack[MessageOptions],
    ) -> str:
        """Return a text for a prompt: its state, its summary and its last runs (3), each with a budget; 0 leaves a part out.

        Without any run it has the newest messages. The options are those of messages().
        """
        return await context(
            self,
            state_tokens=state_tokens,
            summary_tokens=summary_tokens,
            message_tokens=message_tokens,
            options=options,
        )

    async def note(self, role: str, content: Content, *, run_id: str | None = None) -> HistoryEntry:
        """Add a message to its history: a text, or blocks such as `{"type": "text", "text": ...}`, of at most 64 KiB."""
        arguments: JSON = {"role": role, "content": text_of(content)}
        if run_id is not None:
            arguments["run_id"] = run_id
        answer = await self.call_own("session_note", arguments)
        return parse_result(HistoryEntry, answer["entry"])

    async def summary(
        self,
        text: str | None = None,
        *,
        topics: Sequence[str] | None = None,
        refresh: bool = False,
    ) -> Summary:
        """Return its summary; with a text, store that as its summary first.

        `refresh` has the command of the server write one first; if that fails, `problem` says why.
        """
        arguments: JSON = {} if text is None else {"text": text}
        if topics is not None:
            arguments["topics"] = list(topics)
        if refresh:
            arguments["refresh"] = True
        answer = await self.call_own("session_summary", arguments)
        return Summary(answer["digest"], answer.get("summary"), answer.get("problem"))

    async def summarize(self, function: SummaryFunction) -> Summary:
        """Store the summary that a function of yours makes, such as one that asks a model, and return it.

        The function gets the messages of messages(), and returns a text or `{"summary": ..., "topics": [...], "name": ...}`.
        A session without a name gets that name.
        """
        text, topics, name = summary_fields(await function(await self.messages()))
        summary = await self.summary(text, topics=topics)
        if name is not None and self.name is None:
            with suppress(NameTaken):
                await self.rename(name)
        return summary

    async def fork(
        self, count: int = 1, *, names: Sequence[str] | None = None, keep: bool | None = None
    ) -> list[Session]:
        """Create children that start from a copy of its state and of its services' snapshots.

        Children of a session whose block is still open are closed with that block, unless `keep`.
        """
        arguments: JSON = {"count": count}
        if names is not None:
            arguments["names"] = list(names)
        if self.children is None or keep:
            return await self._fork(arguments)
        children = await create_or_undo(lambda: self._fork(arguments), end_sessions)
        for child in children:
            child.children = []
        self.children += children
        return children

    async def _fork(self, arguments: JSON) -> list[Session]:
        answer = await self.call_own("session_fork", arguments)
        children = parse_result(ForkResult, answer).children
        briefs = [SessionBrief(child.session_id, child.name) for child in children]
        caller, scope, namespace = self._caller, self._scope, self.namespace
        return [Session(caller, brief, scope=scope, namespace=namespace) for brief in briefs]

    def take_children(self) -> list[Session]:
        """Return the children that end with the block around, and forget them."""
        children, self.children = self.children or [], None
        return children

    async def merge(
        self, sources: Sequence[Session | str], *, policy: MergePolicy = "last_wins"
    ) -> MergeResult:
        """Merge the changes that its children made to their states into its own state."""
        ids = [source if isinstance(source, str) else source.id for source in sources]
        outcome = await self.call_own("session_merge", {"sources": ids, "policy": policy})
        return parse_result(MergeResult, outcome)

    async def close_quietly(self) -> None:
        """Close it if it is open, without retries. Logs an error instead of raising it."""
        if not self.is_open:
            return
        try:
            await self._caller.call(self.id, "session_close", {}, retry=False)
        except SessionNotFound:
            pass
        except Exception as error:
            # A malformed answer must not hide an exception of the block either.
            logger.warning("session %s was not closed: %s", self.id, error)
        self.mark_closed()


__all__ = ["MergePolicy", "Session", "Words", "current_sessions"]
