"""The control requests that a process answers for the command line: its user may act on every session that it holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from ...sessions.actions.rename_delete import SAME
from ...sessions.errors import SessionNotFound
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Event
from ...sessions.node import NODES
from ...sessions.records import Principal
from ...sessions.registry import Registry
from .socket import serve_control

SHOWN: Final = 1000
"""Conflicts that an answer lists."""


class ControlHandler:
    """Answers control requests over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, request: JSON) -> JSON:
        """Run one checked request; socket.py describes its form.

        Raises:
            SessionError: as the registry's own methods do.
        """
        op = request["op"]
        if op == "list":
            return {"sessions": [session.info() for session in self._registry.held()]}
        session_id: str = request["session"]
        if op == "stderr":
            return {"stderr": self._stderr(session_id)}
        principal = self._owner_of(request)
        if op == "pause":
            return {"session": await self._pause(principal, session_id, bool(request.get("force")))}
        if op == "resume":
            return {"session": (await self._registry.resume(principal, session_id)).info()}
        if op == "close":
            force = bool(request.get("force"))
            found, _ = await self._registry.close(principal, session_id, force=force, reason="cli")
            return {"session": found}
        if op == "save":
            await self._registry.porting.save(principal, session_id)
            return {}
        if op in _CHANGES:
            return await _CHANGES[op](self._registry, principal, session_id, request)
        return {"session": await self._registry.info(principal, session_id)}

    async def _pause(self, principal: Principal, session_id: str, release: bool) -> JSON:
        """Pause a session; `release` also gives up connections that its services would keep."""
        session = await self._registry.pause(principal, session_id, cause="cli")
        if release and not session.gone.is_set():
            await self._registry.pausing.pause(
                session, Event.PAUSE_REQUESTED, cause="cli", release=True
            )
        return session.info()

    def _stderr(self, session_id: str) -> JSON:
        """Return the last lines of stderr of each connection of a session of this process, by service."""
        for session in self._registry.held():
            if session.id == session_id:
                return dict(session.stderr_tails())
        return {}

    def _owner_of(self, request: JSON) -> Principal:
        for session in self._registry.held():
            if session.id == request["session"]:
                return Principal.of_key(session.record.owner)
        owner = request.get("owner")
        if not isinstance(owner, str):
            raise SessionNotFound
        return Principal.of_key(owner)


async def _screenshot(
    registry: Registry, principal: Principal, session_id: str, request: JSON
) -> JSON:
    from .screenshot import picture

    kind, full_page = request["kind"], request["full_page"]
    return await picture(registry, principal, session_id, kind=kind, full_page=full_page)


async def _state(registry: Registry, principal: Principal, session_id: str, request: JSON) -> JSON:
    wish = {key: request[key] for key in ("mode", "path", "if_version")}
    values: object = request["values"]
    newer = await registry.states.update(principal, session_id, values, **wish)
    return {"version": newer.version}


async def _delete(registry: Registry, principal: Principal, session_id: str, request: JSON) -> JSON:
    force = bool(request.get("force"))
    return {"session": await registry.rename_delete.delete(principal, session_id, force=force)}


async def _rename(registry: Registry, principal: Principal, session_id: str, request: JSON) -> JSON:
    name, metadata = request.get("name", SAME), request.get("metadata")
    session = await registry.rename_delete.rename(principal, session_id, name, metadata=metadata)
    return {"session": session.info()}


async def _fork(registry: Registry, principal: Principal, session_id: str, request: JSON) -> JSON:
    count, names = request["count"], request["names"]
    forked = await registry.forking.fork(principal, session_id, count=count, names=names)
    return {
        "children": [child.info() for child in forked.children],
        "services": [asdict(service) for service in forked.services],
    }


async def _merge(registry: Registry, principal: Principal, session_id: str, request: JSON) -> JSON:
    sources, policy = request["sources"], request["policy"]
    found = await registry.forking.merge(principal, session_id, sources, policy=policy)
    return {
        "version": found.state.version,
        "conflicts": [asdict(conflict) for conflict in found.conflicts[:SHOWN]],
        "conflict_count": found.conflicts.total,
    }


_CHANGES: Final[dict[str, Callable[[Registry, Principal, str, JSON], Awaitable[JSON]]]] = {
    "screenshot": _screenshot,
    "state": _state,
    "delete": _delete,
    "rename": _rename,
    "fork": _fork,
    "merge": _merge,
}


@asynccontextmanager
async def control(registry: Registry, folder: Path | None, node: str) -> AsyncGenerator[None]:
    """Let the command line reach this process while the block runs. Without a data folder (`folder` is None) it cannot."""
    if folder is None:
        yield
        return
    async with serve_control(folder / NODES, node, ControlHandler(registry)):
        yield


__all__ = ["ControlHandler", "control"]
