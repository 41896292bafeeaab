"""Tool calls: the session argument, the operation id, and the evaluation of the answer."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..errors import (
    NotAllowed,
    RequestRefused,
    SessionError,
    SessionNotFound,
    ToolFailed,
    UnknownTool,
)
from ..results import JSON, SESSION_META, CallResult, session_argument, table
from ..transport.base import INVALID_PARAMS, Progress
from .acknowledgements import Acknowledgements
from .retry import Again, RetryingRequests, failure

SESSION: Final = "session_id"
_OTHER: Final = "statehold_session_id"
TRIES: Final = 3
NEAR: Final = 5
"""Most similar names that the error of an unknown tool lists."""

_HARMLESS: Final = frozenset(
    (
        *("session_list", "session_info", "session_close", "session_pause", "session_resume"),
        *("session_rename", "session_bind", "session_unbind", "session_history"),
        *("session_summary", "session_merge", "session_export", "state_get"),
        *("service_list", "server_stats"),
    )
)
"""Statehold's own tools that are idempotent and may always be called again."""
_ONCE: Final = frozenset(
    (
        *("session_create", "session_extend", "session_restart", "session_note"),
        *("session_fork", "session_delete", "session_import", "state_update"),
    )
)
"""Own tools that may be called again only if the server remembers them by their operation id."""
OWN: Final = _HARMLESS | _ONCE
TOOLSETS: Final = (
    "Add its toolset to `toolsets` of the server: core, lifecycle, state, history, branch, admin."
)
WITHOUT_SESSION: Final = frozenset(
    ("session_create", "session_list", "session_import", "service_list", "server_stats")
)


def present(**arguments: object) -> JSON:
    """Return the arguments that were given, as JSON."""
    return {name: _plain(value) for name, value in arguments.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(cast("Sequence[Any]", value))
    return value


class Calls:
    """Calls tools of one server. It remembers the session argument of tools where that has not the usual name."""

    def __init__(self, line: RetryingRequests) -> None:
        self.line = line
        self._arguments: dict[str, str] = {}
        self._settled: dict[str, Acknowledgements] = {}

    async def run(
        self,
        session_id: str | None,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
        operation_id: str | None = None,
        run_id: str | None = None,
        check: bool = True,
        patient: bool = True,
    ) -> CallResult:
        """Call a tool in a session and return its result.

        Raises:
            SessionError: the tree of errors.py; ToolFailed only with `check`.
        """
        # The session remembers ids of the caller; the process remembers ours, if it has a name.
        instance = self.line.instance if tool in _ONCE and operation_id is None else None
        remembered = tool not in OWN or instance is not None
        operation = operation_id or (self.line.operation() if remembered else None)
        again = _again(tool, operation is not None)
        meta: JSON = {} if operation is None else {"statehold/operation_id": operation}
        if instance is not None:
            meta["statehold/operation_instance"] = instance
        if run_id is not None:
            meta["statehold/run_id"] = run_id
        settled = None
        if session_id is not None and operation is not None and tool not in OWN:
            settled = self._settled.setdefault(session_id, Acknowledgements())
            if operation_id is None:
                meta["statehold/operation_epoch"] = settled.epoch
            if told := settled.due():
                meta["statehold/settled"] = told
        given = await self._given(session_id, tool, arguments)
        for attempt in range(TRIES):
            try:
                payload = await self.line.call(
                    tool,
                    given,
                    again=again,
                    meta=meta,
                    timeout_seconds=timeout_seconds,
                    progress=progress,
                    patient=patient,
                )
            except BaseException as error:
                # The id is ours and is not sent again, so the server need not keep its outcome.
                if settled is not None and operation is not None and operation_id is None:
                    settled.add(operation, {})
                if isinstance(error, RequestRefused):
                    raise await self._known(error, tool) from None
                raise
            self.line.note(payload)
            self._note_epoch(payload)
            error = failure(payload) if payload.get("isError") is True else None
            if settled is not None:
                if error is None:
                    settled.told(meta.get("statehold/settled", []))
                if operation is not None and operation_id is None:
                    settled.add(operation, payload)
            if error is None:
                result = CallResult(payload)
                if check and result.is_error:
                    raise ToolFailed(tool, result)
                return result
            if self.line.instance != meta.get("statehold/operation_instance", self.line.instance):
                # Not run: another process answered than the named one. After the second time name none.
                if attempt:
                    del meta["statehold/operation_instance"], meta["statehold/operation_id"]
                    again = "never"
                else:
                    meta["statehold/operation_instance"] = self.line.instance
                continue
            if attempt or not (isinstance(error, SessionNotFound) and _names_another(error)):
                raise error
            # The tool has a session_id of its own. Nothing ran: no session was named.
            await self._learn(tool)
            given = await self._given(session_id, tool, arguments)
        raise AssertionError("unreachable")

    def _note_epoch(self, payload: JSON) -> None:
        said: JSON = table(table(payload.get("_meta")).get(SESSION_META))
        if "epoch" in said and "id" in said:
            self._settled.setdefault(said["id"], Acknowledgements()).epoch = said["epoch"]

    def forget(self, session_id: str) -> None:
        """Drop all data kept here of a closed session."""
        self._settled.pop(session_id, None)

    async def _given(self, session_id: str | None, tool: str, arguments: Mapping[str, Any]) -> JSON:
        if session_id is None:
            return dict(arguments)
        name = self._arguments.get(tool, SESSION)
        if name in arguments and tool not in self._arguments:
            await self._learn(tool)
            name = self._arguments.get(tool, SESSION)
        return {**arguments, name: session_id}

    async def _learn(self, tool: str) -> None:
        for found in await self.line.tools():
            self._arguments[found["name"]] = session_argument(found["inputSchema"]) or SESSION

    async def _known(self, refused: RequestRefused, tool: str) -> SessionError:
        if refused.rpc_code != INVALID_PARAMS or not refused.message.startswith("Unknown tool"):
            return refused
        if tool in OWN:
            return NotAllowed(f"This server does not offer {tool}.", recovery=TOOLSETS)
        names = [found["name"] for found in await self.line.tools()]
        near = difflib.get_close_matches(tool, names, NEAR, 0.4)
        return UnknownTool(refused.rpc_code, tool, near)


def _again(tool: str, remembered: bool) -> Again:
    if tool in _HARMLESS:
        return "always"
    return "operation" if remembered else "never"


def _names_another(error: SessionNotFound) -> bool:
    return error.message.startswith(_OTHER) and " is missing" in error.message


__all__ = ["OWN", "SESSION", "WITHOUT_SESSION", "Calls", "present"]
