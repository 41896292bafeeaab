"""The sessions of one namespace: creating, finding and listing them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..sessions.wording import did_you_mean
from ..tools.own.results import SessionInfo, parse_result
from .errors import NameTaken, SessionNotFound, no_session
from .protocol.calls import ToolCalls, arguments_of
from .results import SessionBrief, SessionList
from .session import Session

if TYPE_CHECKING:
    from ..sessions.json_codec import JSON

MAX_TRIES: Final = 3
"""Tries to open a session by a name that is taken, while no session of that name is found."""
PAGE: Final = 1000
"""Sessions per page of a list."""


class SessionDirectory:
    """Creates and finds the sessions of a namespace. Two directories of one client share its connection."""

    def __init__(self, caller: ToolCalls, namespace: str) -> None:
        self._caller = caller
        self.namespace = namespace
        self.scope: object = (id(caller), namespace)
        """The key of its current sessions."""

    async def create(self, options: Mapping[str, Any]) -> Session:
        """Create a session.

        Raises:
            NameTaken: an open session has that name.
        """
        arguments = arguments_of(**options, namespace=self.namespace or None)
        info = await self.call_own("session_create", arguments)
        return self.session_of(parse_result(SessionInfo, info))

    async def open(self, options: Mapping[str, Any]) -> Session:
        """Return the open session of the name in the options, unchanged, or a new session."""
        for attempt in range(MAX_TRIES):
            try:
                return await self.create(options)
            except NameTaken:
                try:
                    return await self.get(options["name"])
                except SessionNotFound:
                    # It was closed meanwhile.
                    if attempt == MAX_TRIES - 1:
                        raise
        raise AssertionError("unreachable")

    async def get(self, ref: str) -> Session:
        """Return the session with this id, or the open session with this name.

        Raises:
            SessionNotFound: there is none.
        """
        session = await self.get_readable(ref)
        if not session.is_open and not ref.startswith("sh_"):
            raise no_session(
                f"There is no open session {ref[:128]!r}; the last one of this name is closed."
            )
        return session

    async def get_readable(self, ref: str) -> Session:
        """Return the session with this id, or with this name: the open one, or the one that was closed last.

        Raises:
            SessionNotFound: there is none, or it was purged.
        """
        if ref.startswith("sh_") or not self.namespace:
            info = await self.call_own("session_info", {"session_id": ref})
            return self.session_of(parse_result(SessionInfo, info), attached=True)
        name = unicodedata.normalize("NFC", ref)
        matches = [each for each in await self.list({"name": name}) if each.name == name]
        if not matches:
            closed = await self.list({"name": name, "statuses": ["closed"]})
            matches = [each for each in closed if each.name == name]
        if not matches:
            hint = did_you_mean(name, [each.name or "" for each in await self.list({}, PAGE)])
            raise no_session(f"There is no session {ref[:128]!r} in {self.namespace!r}.{hint}")
        return await self.get_readable(matches[0].session_id)

    async def get_or_create(self, ref: str) -> Session:
        """Return the session with this id, or the open one of this name; create the latter when there is none."""
        return await (self.get(ref) if ref.startswith("sh_") else self.open({"name": ref}))

    async def list(
        self, filters: Mapping[str, Any], limit: int | None = None, cursor: str | None = None
    ) -> SessionList:
        """Return the sessions that match, those used last first; without a namespace those of all namespaces."""
        arguments = arguments_of(**filters, namespace=self.namespace or None)
        sessions = SessionList(next_cursor=cursor)
        while True:
            if sessions.next_cursor is not None:
                arguments["cursor"] = sessions.next_cursor
            arguments["limit"] = PAGE if limit is None else min(PAGE, limit - len(sessions))
            page = await self.call_own("session_list", arguments)
            sessions += [parse_result(SessionInfo, each) for each in page["sessions"]]
            sessions.next_cursor = page.get("next_cursor")
            if sessions.next_cursor is None or (limit is not None and len(sessions) >= limit):
                return sessions

    async def find(self, ref: str | None, filters: Mapping[str, Any]) -> Session | None:
        """Return the open session with this id or name, or the one used last that matches; None when there is none.

        Raises:
            TypeError: it is to be found by both.
        """
        if ref is not None and filters:
            raise TypeError("find() takes an id or a name, or filters")
        try:
            if ref is not None:
                session = await self.get(ref)
                return session if session.is_open else None
            matches = await self.list(filters, limit=1)
            return await self.get(matches[0].session_id) if matches else None
        except SessionNotFound:
            return None

    def session_of(self, info: SessionInfo, *, attached: bool = False) -> Session:
        """Return a handle to the session of this description."""
        brief = SessionBrief(
            info.session_id, info.name, info.status, info.generation, info.expires_at
        )
        return Session(
            self._caller,
            brief,
            scope=self.scope,
            attached=attached,
            namespace=info.namespace,
        )

    async def call_own(self, tool: str, arguments: Mapping[str, Any]) -> JSON:
        """Call one of Statehold's own tools outside of every session, and return its structured content."""
        return (await self._caller.call(None, tool, arguments)).structured_content or {}


__all__ = ["SessionDirectory"]
