"""Tool calls: the session argument, the operation id, and the evaluation of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from ...sessions.wording import near_names
from ..errors import (
    NotAllowed,
    RequestRefused,
    ServerUnreachable,
    SessionError,
    SessionNotFound,
    ToolFailed,
    UnknownTool,
    error_of_refusal,
)
from ..options import CallOptions
from ..results import SESSION_META, CallResult, ResourceContent, Tool, object_of, session_argument
from ..transport.base import INVALID_PARAMS
from .retry import Repeat, RetryingRequests, error_in

if TYPE_CHECKING:
    from ...sessions.json_codec import JSON

SESSION: Final = "session_id"
_OTHER_SESSION: Final = "statehold_session_id"
MAX_TRIES: Final = 3
NEAR: Final = 5
"""Most similar names that the error of an unknown tool lists."""
NEAR_SIMILARITY: Final = 0.5
"""The similarity of these names at least: `type` is near to `browser_type`, which other tools are not."""

IDEMPOTENT: Final = frozenset(
    (
        *("session_list", "session_info", "session_close", "session_pause", "session_resume"),
        *("session_rename", "session_bind", "session_unbind", "session_history"),
        *("session_summary", "session_merge", "session_export", "state_get"),
        *("session_view", "session_request_human", "service_list", "server_stats"),
        *("session_share", "session_unshare"),
    )
)
"""Statehold's own tools that are idempotent and may always be called again."""
_ONCE: Final = frozenset(
    (
        *("session_create", "session_extend", "session_restart", "session_note"),
        "session_run",
        *("session_fork", "session_delete", "session_import", "state_update"),
    )
)
"""Own tools that may be called again only if the server remembers them by their operation id."""
OWN: Final = IDEMPOTENT | _ONCE
TOOLSETS: Final = "Add its toolset to `toolsets` of the server: core, lifecycle, state, history, branch, admin, view."
WITHOUT_SESSION: Final = frozenset(
    ("session_create", "session_list", "session_import", "service_list", "server_stats")
)


def arguments_of(**arguments: object) -> JSON:
    """Return the arguments that are not None, as JSON."""
    return {name: _to_plain(value) for name, value in arguments.items() if value is not None}


def _to_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(cast("Sequence[Any]", value))
    return value


class ToolCalls:
    """Calls tools and reads resources of one server. It lives as long as the client; any task may use it.

    It remembers the session argument of tools where that has not the usual name.
    """

    def __init__(self, requests: RetryingRequests) -> None:
        self.requests = requests
        self.is_open = False
        self._session_arguments: dict[str, str] = {}
        self._acknowledgements: dict[str, Acknowledgements] = {}

    async def call(
        self,
        session_id: str | None,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        retry: bool = True,
        as_task: bool = False,
        **options: Unpack[CallOptions],
    ) -> CallResult:
        """Call a tool in a session, or in none. `retry` waits for a server that cannot be reached.

        With `as_task` the payload is a task, unless the call has ended.

        Raises:
            SessionError: the tree of errors.py; ToolFailed only with `check`.
        """
        unknown = options.keys() - CallOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"a call has no option {', '.join(sorted(unknown))}")
        self.require_open()
        operation_id, run_id = options.get("operation_id"), options.get("run_id")
        # The session remembers ids of the caller; the process remembers ours, if it has a name.
        instance = self.requests.instance if tool in _ONCE and operation_id is None else None
        needs_id = tool not in OWN or instance is not None
        operation = operation_id or (self.requests.new_operation_id() if needs_id else None)
        repeat = _repeat_of(tool, operation is not None)
        meta: JSON = {SESSION_META: True}
        if operation is not None:
            meta["statehold/operation_id"] = operation
        if instance is not None:
            meta["statehold/operation_instance"] = instance
        if run_id is not None:
            meta["statehold/run_id"] = run_id
        if as_task:
            meta |= {"statehold/hand_over": True, **self.requests.tasks_meta}
        acknowledgements: Acknowledgements | None = None
        if session_id is not None and operation is not None and tool not in OWN:
            acknowledgements = self._acknowledgements.setdefault(session_id, Acknowledgements())
            if operation_id is None:
                meta["statehold/operation_epoch"] = acknowledgements.epoch
            if due := acknowledgements.due():
                meta["statehold/settled"] = due
        params = await self._add_session(session_id, tool, arguments)
        for attempt in range(MAX_TRIES):
            try:
                payload = await self.requests.call(
                    tool,
                    params,
                    repeat=repeat,
                    meta=meta,
                    read_timeout_seconds=options.get("read_timeout_seconds"),
                    progress_callback=options.get("progress_callback"),
                    retry=retry,
                )
            except BaseException as error:
                # The id is ours and is not sent again, so the server need not keep its outcome.
                if acknowledgements is not None and operation is not None and operation_id is None:
                    acknowledgements.add(operation, {})
                if isinstance(error, RequestRefused):
                    raise await self._explain(error, tool) from None
                raise
            self.requests.record_instance(payload)
            self._record_epoch(payload)
            error = error_in(payload) if payload.get("isError") is True else None
            if acknowledgements is not None:
                if error is None:
                    acknowledgements.remove(meta.get("statehold/settled", []))
                if operation is not None and operation_id is None:
                    acknowledgements.add(operation, payload)
            if error is None:
                result = CallResult(payload)
                if options.get("check", True) and result.is_error:
                    raise ToolFailed(tool, result)
                return result
            named_instance = meta.get("statehold/operation_instance", self.requests.instance)
            if self.requests.instance != named_instance:
                # It did not run: another process answered than the named one. After the second time name none.
                if attempt:
                    del meta["statehold/operation_instance"], meta["statehold/operation_id"]
                    repeat = "never"
                else:
                    meta["statehold/operation_instance"] = self.requests.instance
                continue
            if attempt or not _misses_session_argument(error):
                raise error
            # The tool has a session_id of its own. Nothing ran: no session was named.
            await self._learn_session_arguments()
            params = await self._add_session(session_id, tool, arguments)
        raise AssertionError("unreachable")

    async def list_tools(self) -> list[Tool]:
        """Return all tools of the server."""
        self.require_open()
        return [Tool.of(definition) for definition in await self.requests.list_tools()]

    async def read_resource(self, uri: str) -> list[ResourceContent]:
        """Read a resource, and return its parts.

        Raises:
            SessionError: it cannot be read.
        """
        self.require_open()
        try:
            answer = await self.requests.request("resources/read", {"uri": uri})
        except RequestRefused as refusal:
            raise error_of_refusal(refusal) from None
        return [ResourceContent.of(part) for part in answer["contents"]]

    def forget(self, session_id: str) -> None:
        """Drop all data about a closed session. Sends nothing."""
        self._acknowledgements.pop(session_id, None)

    def require_open(self) -> None:
        """Raise ServerUnreachable unless the client is open."""
        if not self.is_open:
            raise ServerUnreachable(
                "The client is not open.", recovery="Use it inside of `async with connect(...)`."
            )

    def _record_epoch(self, payload: JSON) -> None:
        session: JSON = object_of(object_of(payload.get("_meta")).get(SESSION_META))
        if "epoch" in session and "id" in session:
            acknowledgements = self._acknowledgements.setdefault(session["id"], Acknowledgements())
            acknowledgements.epoch = session["epoch"]

    async def _add_session(
        self, session_id: str | None, tool: str, arguments: Mapping[str, Any]
    ) -> JSON:
        if session_id is None:
            return dict(arguments)
        name = self._session_arguments.get(tool, SESSION)
        if name in arguments and tool not in self._session_arguments:
            await self._learn_session_arguments()
            name = self._session_arguments.get(tool, SESSION)
        return {**arguments, name: session_id}

    async def _learn_session_arguments(self) -> None:
        for definition in await self.requests.list_tools():
            argument = session_argument(definition["inputSchema"]) or SESSION
            self._session_arguments[definition["name"]] = argument

    async def _explain(self, refusal: RequestRefused, tool: str) -> SessionError:
        if refusal.rpc_code != INVALID_PARAMS or not refusal.message.startswith("Unknown tool"):
            return refusal
        if tool in OWN:
            return NotAllowed(f"This server does not offer {tool}.", recovery=TOOLSETS)
        names = [definition["name"] for definition in await self.requests.list_tools()]
        near = near_names(tool, names, count=NEAR, similarity=NEAR_SIMILARITY)
        return UnknownTool(refusal.rpc_code, tool, near)


def _repeat_of(tool: str, has_operation_id: bool) -> Repeat:
    if tool in IDEMPOTENT:
        return "always"
    return "operation" if has_operation_id else "never"


def _misses_session_argument(error: SessionError) -> bool:
    return (
        isinstance(error, SessionNotFound)
        and error.message.startswith(_OTHER_SESSION)
        and " is missing" in error.message
    )


MAX_ACKNOWLEDGEMENTS: Final = 200
"""Results after which an acknowledgement is sent."""
LARGE: Final = 2 << 20
"""Characters of results after which it is sent sooner."""


class Acknowledgements:
    """The operations of one session whose results have arrived and are not acknowledged yet.

    A server keeps the result of each operation, since a client may ask for it again, and limits their number per session.
    """

    def __init__(self) -> None:
        self.epoch = 0
        """The last known epoch of the session, which rises when a process claims it. A call that is repeated in a later
        epoch may have been run by a process that is gone."""
        self._operations: dict[str, int] = {}
        self._size = 0

    def add(self, operation: str, payload: JSON) -> None:
        """Add an operation whose result has arrived."""
        size = sum(
            len(block.get("text") or block.get("data") or "")
            for block in payload.get("content") or ()
        )
        self._operations[operation] = size
        self._size += size

    def due(self) -> list[str]:
        """Return the operations that the next call has to acknowledge; empty, most of the time."""
        if len(self._operations) < MAX_ACKNOWLEDGEMENTS and self._size < LARGE:
            return []
        return list(self._operations)[:MAX_ACKNOWLEDGEMENTS]

    def remove(self, operations: list[str]) -> None:
        """Remove operations that the server has acknowledged."""
        for operation in operations:
            self._size -= self._operations.pop(operation, 0)


__all__ = [
    "Acknowledgements",
    "NEAR",
    "OWN",
    "SESSION",
    "WITHOUT_SESSION",
    "ToolCalls",
    "arguments_of",
]
