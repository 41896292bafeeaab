"""The parts of the blocking client that are not made from the async one."""

from __future__ import annotations

from typing import Final

INTERNAL: Final = {
    "Client": {"calls", "requests"},
    "Session": {
        "call_own",
        "close_quietly",
        "mark_closed",
        "record_error",
        "record_result",
        "take_children",
    },
    "SessionBlock": {"open", "close"},
    "Run": {"begin", "end"},
    "AutoSession": set[str](),
    "State": set[str](),
    "Task": set[str](),
}
"""The classes, each with its methods that only the async client has."""

TEMPLATES: Final = {
    "Client": '''
def __init__(self, inner: AsyncClient, portal: Portal | None = None) -> None:
    self.inner = inner
    """The same connection of the async client, whose event loop is in another thread."""
    self.portal = portal or Portal()

def __repr__(self) -> str:
    return repr(self.inner)

def __enter__(self) -> Self:
    """Connect.

    Raises:
        ServerUnreachable: no server answers there, or it is no Statehold.
    """
    if self.portal.is_started:
        raise RuntimeError("a client is entered once; connect() makes another one")
    self.portal.start(self)
    try:
        self.portal.run(self.inner.__aenter__)
    except BaseException:
        self.close()
        raise
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    self.close()

def close(self) -> None:
    """End the connection, and the sessions that auto_session() made. May be called twice.

    The end of the program closes a client that is still open.
    """
    if self.portal.is_started:
        try:
            self.portal.run(self.inner.aclose)
        finally:
            self.portal.stop()
''',
    "Session": '''
def __init__(self, portal: Portal, inner: AsyncSession) -> None:
    self.portal = portal
    self.inner = inner
    """The same handle of the async client."""
    self.state = State(portal, inner.state)

def __repr__(self) -> str:
    return repr(self.inner)

def __eq__(self, other: object) -> bool:
    return isinstance(other, Session) and self.inner is other.inner

def __hash__(self) -> int:
    return hash(self.inner)

@contextmanager
def login(self, name: str, *, wait_seconds: int = 10) -> Generator[None]:
    """Lend a login of browsers to the session for a block. Its end gives the login back, also if that fails for now.

    Raises:
        LoginBusy: another session still has it after `wait_seconds`, at most 60.
        LoginUnavailable: its person has to log in again.
    """
    block = self.inner.login(name, wait_seconds=wait_seconds)
    self.portal.run(block.__aenter__)
    try:
        yield
    finally:
        self.portal.run(block.__aexit__, None, None, None)
''',
    "State": """
def __init__(self, portal: Portal, inner: AsyncState) -> None:
    self.portal = portal
    self.inner = inner

def __repr__(self) -> str:
    return repr(self.inner)
""",
    "Task": """
def __init__(self, portal: Portal, inner: AsyncTask) -> None:
    self.portal = portal
    self.inner = inner

def __repr__(self) -> str:
    return repr(self.inner)
""",
    "Run": """
def __init__(self, portal: Portal, inner: AsyncRun) -> None:
    self.portal = portal
    self.inner = inner
    self._use: AbstractContextManager[object] | None = None

def __repr__(self) -> str:
    return repr(self.inner)

def __enter__(self) -> Self:
    self.portal.run(self.inner.begin)
    self._use = self.inner.use()
    self._use.__enter__()
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    assert self._use is not None
    self._use.__exit__(None, None, None)
    self.portal.run(self.inner.end, error)
""",
    "SessionBlock": """
def __init__(self, portal: Portal, inner: AsyncSessionBlock) -> None:
    self.portal = portal
    self.inner = inner
    self._use: AbstractContextManager[Session] | None = None

def __enter__(self) -> Session:
    try:
        session = Session(self.portal, self.portal.run(self.inner.open))
    except Exception:
        raise
    except BaseException:
        # Interrupted after the session was opened in the loop's thread and before this thread knew.
        self.portal.run(self.inner.close)
        raise
    self._use = session.use()
    return self._use.__enter__()

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    assert self._use is not None
    self._use.__exit__(None, None, None)
    self.portal.run(self.inner.close)
""",
    "AutoSession": """
def __init__(self, portal: Portal, inner: AsyncAutoSession) -> None:
    self.portal = portal
    self.inner = inner

def __enter__(self) -> Self:
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    self.end()
""",
}
"""The members of each class that are not made from the async one."""
_CALL: Final = """
arguments = {**mapping, **arguments} if mapping else arguments
return self.call_tool(tool, arguments, run_id=run_id)
"""
_USE: Final = "with self.inner.use():\n    yield self"

BODIES: Final = {
    "Client.call": _CALL,
    "Run.use": _USE,
    "Session.call": _CALL,
    "Session.summarize": """
text, topics, name = summary_fields(function(self.messages()))
summary = self.summary(text, topics=topics)
if name is not None and self.name is None:
    with suppress(NameTaken):
        self.rename(name)
return summary
""",
    "Session.use": _USE,
    "Session.langchain_tools": """
from .langchain import langchain_tools

return langchain_tools(
    self,
    names=names,
    images=images,
    handle_tool_error=handle_tool_error,
    read_timeout_seconds=read_timeout_seconds,
)
""",
    "State.change": """
for attempt in count():
    current = self.read(path)
    value = apply_change(function, current, default)
    try:
        version = self.replace(value, if_version=current.version, path=path)
        return StateValue(True, value, version)
    except StateConflict:
        self.portal.run(anyio.sleep, CONFLICTS.pause(attempt))
raise AssertionError
""",
    "langchain_tools": """
def bind(tool: Tool) -> StructuredTool:
    def func(arguments: Mapping[str, Any]) -> tuple[Content, Artifact]:
        try:
            result = source.call_tool(
                tool.name, arguments, read_timeout_seconds=read_timeout_seconds
            )
        except SessionError as error:
            raise tool_exception(error, images=images) from error
        return content_and_artifact(result, images=images)

    return build_tool(tool, handle_tool_error, func=func)

return [bind(tool) for tool in default_tools(source.list_tools(names=names), names)]
""",
}
"""Bodies of functions whose signature and docstring are the async ones."""
FUNCTIONS: Final = ("connect", "langchain_tools")
PROTOCOLS: Final = ("ToolSource",)
WORDS: Final = (
    ("async with", "with"),
    ("`await", "`"),
    (" await ", " "),
    ("in this task or thread", "in this thread"),
    ("Any task", "Any thread"),
    ("of this task", "of this thread"),
    ("The Python client:", "The Python client for programs that block:"),
)
"""Replacements in docstrings."""

__all__ = ["BODIES", "FUNCTIONS", "INTERNAL", "PROTOCOLS", "TEMPLATES", "WORDS"]
