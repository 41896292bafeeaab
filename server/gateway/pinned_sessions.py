"""Sessions that a URL or the command line names, so that the calls need not."""

from __future__ import annotations

import unicodedata
from typing import Final, cast

import anyio

from ...sessions.attribution import NOTE
from ...sessions.errors import (
    NameTaken,
    OwnedByAnotherNode,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionNotFound,
    StoreUnavailable,
)
from ...sessions.lifecycle import OPEN, Status
from ...sessions.records import Principal, SessionFilter
from ...sessions.registry import Registry
from ...sessions.transitions.create import CreationOptions
from ...sessions.wording import did_you_mean

ABSENT: Final = (SessionNotFound, SessionClosed, SessionExpired, SessionFailed)
"""The errors of a name that no open session has."""
MAX_NAMES: Final = 1000
"""Sessions whose names are listed."""
MAX_COMPARED: Final = 100
"""Sessions whose names and ids are compared with the unknown one of a call, which anyone may repeat at will."""


class PinnedSessions:
    """The pinned sessions of one gateway. They are found by their names, and created on first use."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._registry = registry
        self._namespace = namespace
        self._locks: dict[tuple[str, str], anyio.Lock] = {}

    async def id_of(self, principal: Principal, name: str) -> str:
        """Return the id of the session that a URL or a command line names, created on first use."""
        name = unicodedata.normalize("NFC", name)
        lock = self._locks.setdefault((principal.key, name), anyio.Lock())
        try:
            # Of several first calls at once, one creates the session; the others wait and find it.
            async with lock:
                return await self._find_or_create(principal, name)
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._locks.pop((principal.key, name), None)

    async def allows(self, principal: Principal, pin: str | None, session_id: str) -> bool:
        """Whether an address allows a session: a pinned one, whose name is `pin`, allows no other."""
        # The name is empty for a command that names no session.
        return not pin or session_id == await self.id_of(principal, pin)

    async def find_id(self, principal: Principal, name: str) -> str | None:
        """Return the id of the session that a name has in this process; None without one."""
        try:
            name = unicodedata.normalize("NFC", name)
            return (await self._registry.find(principal, name, self._namespace)).id
        except (OwnedByAnotherNode, *ABSENT):
            return None

    async def references(
        self, principal: Principal, limit: int = MAX_NAMES
    ) -> dict[str, list[str]]:
        """Return open sessions of a caller, those that were used last first: `names`, with ids for those without, and `ids`
        of those that have one."""
        session_filter = SessionFilter(namespace=self._namespace, statuses=list(OPEN), limit=limit)
        sessions, _ = await self._registry.page(principal, session_filter)
        return {
            "names": [session["name"] or session["session_id"] for session in sessions],
            "ids": [session["session_id"] for session in sessions if session["name"]],
        }

    async def with_near(
        self, principal: Principal, ref: object, error: SessionNotFound
    ) -> SessionNotFound:
        """Return an error that names the sessions of its caller that are near to `ref`; the error itself if none is."""
        if not isinstance(ref, str):
            return error
        try:
            known = await self.references(principal, MAX_COMPARED)
        except (SessionError, StoreUnavailable):
            return error
        references = [*known["names"], *known["ids"]]
        hint = "" if ref in references else did_you_mean(ref, references)
        return SessionNotFound(error.message + hint, recovery=error.recovery) if hint else error

    async def _find_or_create(self, principal: Principal, name: str) -> str:
        absent: SessionError = SessionNotFound()
        for _ in range(3):
            try:
                return (await self._registry.find(principal, name, self._namespace)).id
            except OwnedByAnotherNode as error:
                return cast("str", error.session_id)
            except ABSENT as error:
                if name.startswith("sh_"):
                    raise
                absent = error
            try:
                session = await self._registry.create(
                    principal, CreationOptions(name=name, namespace=self._namespace)
                )
                session.is_unreported = True
                session.notice = await self._predecessor(principal, name)
                return session.id
            except NameTaken:
                # Another process was faster.
                continue
        raise absent

    async def _predecessor(self, principal: Principal, name: str) -> str | None:
        """Return a notice about the closed session that had this name before, so that a caller does not expect its state."""
        session_filter = SessionFilter(
            namespace=self._namespace, name_prefix=name, statuses=[Status.CLOSED], limit=10
        )
        sessions, _ = await self._registry.page(principal, session_filter)
        for session in sessions:
            if session["name"] == name:
                return (
                    f"{NOTE}: this is a new session. The one called {name!r} before was closed "
                    f"({session['reason']}, {session['closed_at']}); nothing of it is left in this one."
                )
        return None
