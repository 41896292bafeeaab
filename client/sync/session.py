"""One session, for programs that block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import session
from ..errors import SessionError
from ..results import (
    JSON,
    CallResult,
    Entry,
    History,
    Merged,
    ResourceContent,
    SessionInfo,
    Summary,
    Tool,
)
from ..session import MergePolicy, Words
from .portal import in_thread
from .state import State

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

    from ..integrations.langchain import Handler
    from .client import Client

Progress: TypeAlias = Callable[[float, float | None, str | None], None]
"""Receives the progress of a call, in a thread of its own: the amount done, the total, and a message."""


class Session:
    """A handle to a session. Any thread may use it, and several handles may lead to the same session.

    `status`, `generation` and `expires_at` are from the server's last answer; info() asks again. Dropping a handle does
    not end the session: close() does, or the end of the block that made it.
    """

    def __init__(self, client: Client, inner: session.Session) -> None:
        self.client = client
        self.inner = inner
        """The same handle of the async client."""
        self.state = State(inner.state, client.run)

    def __repr__(self) -> str:
        return repr(self.inner)

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def name(self) -> str | None:
        return self.inner.name

    @property
    def namespace(self) -> str:
        return self.inner.namespace

    @property
    def attached(self) -> bool:
        """Whether the session existed before: found by its name or id, not created by this handle."""
        return self.inner.attached

    @property
    def status(self) -> str:
        return self.inner.status

    @property
    def generation(self) -> int:
        """A counter that rises whenever one of its live connections was replaced."""
        return self.inner.generation

    @property
    def expires_at(self) -> str | None:
        return self.inner.expires_at

    @property
    def is_open(self) -> bool:
        return self.inner.is_open

    @property
    def last_error(self) -> SessionError | None:
        """The error of the last failed call."""
        return self.inner.last_error

    @contextmanager
    def use(self) -> Generator[Session]:
        """Make it the current session of this thread inside of a `with` block, which leaves it as it is."""
        outer = self.client.current.enter(self.client.key, self)
        try:
            yield self
        finally:
            self.client.current.leave(outer)

    # Calls.

    def call(
        self, tool: str, given: Mapping[str, Any] | None = None, /, **arguments: Any
    ) -> CallResult:
        """Call a tool in this session. Arguments are keywords, or a mapping, or both.

        Raises:
            ToolFailed: the tool answered with an error.
            OutcomeUnknown: the connection broke, and it is unknown whether the call ran.
            SessionError: everything else, see statehold.client.errors.
        """
        return self.call_tool(tool, {**given, **arguments} if given else arguments)

    def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
        operation_id: str | None = None,
        run_id: str | None = None,
        check: bool = True,
    ) -> CallResult:
        """Call a tool, with options for the call.

        `operation_id`: the server runs at most one call of an id in a session, and returns its result to all others, of any
        caller. Without one each call gets a new id. `run_id` groups calls in the history. With `check=False` an error of the
        tool is returned, not raised.
        """
        return self.client.run(
            self.inner.call_tool,
            tool,
            arguments,
            timeout_seconds=timeout_seconds,
            progress=None if progress is None else in_thread(progress, "progress"),
            operation_id=operation_id,
            run_id=run_id,
            check=check,
        )

    # Information.

    def info(self) -> SessionInfo:
        """Ask the server for everything about it. Looking does not count as use."""
        return self.client.run(self.inner.info)

    def tools(self) -> list[Tool]:
        """Return the tools of the services that it uses."""
        return self.client.run(self.inner.tools)

    def langchain_tools(
        self,
        *,
        names: Collection[str] | None = None,
        images: bool = True,
        handle_tool_error: Handler | None = None,
        timeout_seconds: float | None = None,
    ) -> list[StructuredTool]:
        """Return the tools of its services for LangChain, bound to it: no model sees a session_id.

        Needs the extra `langchain`; statehold.client.integrations.langchain says what the options are.
        """
        from .langchain import langchain_tools

        return langchain_tools(
            self,
            names=names,
            images=images,
            handle_tool_error=handle_tool_error,
            timeout_seconds=timeout_seconds,
        )

    def read(self, uri: str, *, service: str | None = None) -> list[ResourceContent]:
        """Read a resource: `session://...` as in a result, or the URI that a service has for it, with `service`."""
        return self.client.run(self.inner.read, uri, service=service)

    # Lifecycle.

    def pause(self) -> SessionInfo:
        """Save its services' snapshots and close their connections. The next call resumes the session."""
        return self.client.run(self.inner.pause)

    def resume(self) -> SessionInfo:
        return self.client.run(self.inner.resume)

    def extend(self, seconds: float = 3600.0) -> SessionInfo:
        """Extend its lifetime; negative seconds shorten it."""
        return self.client.run(self.inner.extend, seconds)

    def restart(self, services: Sequence[str] | None = None) -> SessionInfo:
        """Replace its live connections, all or those of some services; their state in memory is lost."""
        return self.client.run(self.inner.restart, services)

    def rename(
        self, name: str | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> SessionInfo:
        """Change its name, or merge values into its metadata. With neither it loses its name."""
        return self.client.run(self.inner.rename, name, metadata=metadata)

    def bind(self, service: str) -> SessionInfo:
        """Let it use another service. Binding a bound service does nothing."""
        return self.client.run(self.inner.bind, service)

    def unbind(self, service: str) -> SessionInfo:
        """End its use of a service; the service's snapshot is deleted."""
        return self.client.run(self.inner.unbind, service)

    def close(self, *, force: bool = False) -> None:
        """Close it and its connections; `force` does not wait for running calls. May be called twice."""
        self.client.run(self.inner.close, force=force)

    def delete(self, *, force: bool = False) -> None:
        """Close it and delete all its stored data. Needs the toolset `admin`."""
        self.client.run(self.inner.delete, force=force)

    def export(self, *, secrets: bool = False) -> JSON:
        """Return all its stored data as one document, for Client.import_session. Needs the toolset `admin`."""
        return self.client.run(self.inner.export, secrets=secrets)

    # Its history.

    def history(
        self,
        last: int = 50,
        *,
        kind: Words | None = None,
        tool: Words | None = None,
        skip_tools: Words | None = None,
        status: Words | None = None,
        run: Words | None = None,
        last_runs: int | None = None,
        role: Words | None = None,
        skip_roles: Words | None = None,
        since: str | None = None,
        until: str | None = None,
        cursor: str | None = None,
    ) -> History:
        """Return the newest matching entries: calls, messages, and changes of its status."""
        return self.client.run(
            self.inner.history,
            last,
            kind=kind,
            tool=tool,
            skip_tools=skip_tools,
            status=status,
            run=run,
            last_runs=last_runs,
            role=role,
            skip_roles=skip_roles,
            since=since,
            until=until,
            cursor=cursor,
        )

    def note(self, role: str, content: str, *, run_id: str | None = None) -> Entry:
        """Add a message to its history."""
        return self.client.run(self.inner.note, role, content, run_id=run_id)

    def summary(self, text: str | None = None, *, topics: Sequence[str] | None = None) -> Summary:
        """Return its summary; with a text, store that as its summary first."""
        return self.client.run(self.inner.summary, text, topics=topics)

    # Its children.

    def fork(
        self, count: int = 1, *, names: Sequence[str] | None = None, keep: bool | None = None
    ) -> list[Session]:
        """Create children that start from a copy of its state and of its services' snapshots.

        Children of a session whose block is still open are closed with that block, unless `keep`.
        """
        found = self.client.run(self.inner.fork, count, names=names, keep=keep)
        return [Session(self.client, child) for child in found]

    def merge(
        self, sources: Sequence[Session | str], *, policy: MergePolicy = "last_wins"
    ) -> Merged:
        """Merge the changes that its children made to their states into its own state."""
        ids = [source if isinstance(source, str) else source.id for source in sources]
        return self.client.run(self.inner.merge, ids, policy=policy)


__all__ = ["Progress", "Session"]
