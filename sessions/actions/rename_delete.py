"""Renaming a session, changing its metadata, and deleting it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, cast

from ..core import Core
from ..errors import SessionBusy
from ..live.directory import Directory
from ..live.quota import Quota
from ..live.session import LiveSession
from ..records import Principal
from ..state.patch import copy_json, merge_patch, size_of
from ..transitions.access import Access
from ..transitions.close import Closing
from ..validation import validate_metadata, validate_name


class _Same(Enum):
    SAME = 0


SAME: Final = _Same.SAME
"""Default of a name argument: the name stays."""


class RenameDelete:
    """Renames and deletes the sessions of one registry; it lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        access: Access,
        closing: Closing,
        quota: Quota,
    ) -> None:
        self._core = core
        self._directory = directory
        self._access = access
        self._closing = closing
        self._quota = quota

    async def rename(
        self,
        principal: Principal,
        ref: str,
        name: str | _Same | None = SAME,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> LiveSession:
        """Give a session another name, or none, and apply a merge patch to its metadata, where null deletes.

        Raises:
            InvalidArgument, NameTaken: nothing was changed.
        """
        columns: dict[str, Any] = {}
        if name is not SAME:
            columns["name"] = None if name is None else validate_name(name, "name")
        async with self._access.hold(principal, ref) as session:
            if metadata is not None:
                columns["metadata"] = _patch_metadata(session.record.metadata, metadata)
                growth = size_of(columns["metadata"]) - size_of(session.record.metadata)
                self._quota.admit(session.record.owner, growth)
            if "name" in columns:
                columns["timeouts"] = self._core.policy.renamed(
                    session.record.timeouts, before=session.record.name, after=columns["name"]
                )
            self._directory.unname(session)
            try:
                await session.save(**columns)
            finally:
                self._directory.name(session)
            self._directory.schedule(session)
        return session

    async def delete(
        self, principal: Principal, ref: str, *, force: bool = False
    ) -> dict[str, Any]:
        """Close a session if it is open, then delete all its data in one transaction (T19). Its id is not used again.

        Calls in flight get the grace of closing, none with `force`. Returns the last description of the session.

        Raises:
            SessionNotFound: unknown, foreign or deleted.
            SessionBusy: another process holds it, or it could not be recorded as closed; nothing was deleted.
        """
        description, _ = await self._closing.close_by_ref(
            principal, ref, force=force, reason="deleted"
        )
        await self.purge(principal, description["session_id"])
        return description

    async def purge(self, principal: Principal, ref: str) -> None:
        """Delete all data of a closed session (T19).

        Raises:
            SessionBusy: it is still open.
        """
        record = await self._directory.find_record(principal, ref)
        if not await self._directory.purge(record.id):
            raise SessionBusy("The session is still open.", session_id=record.id)


def _patch_metadata(metadata: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with a merge patch applied (RFC 7396)."""
    patched = cast("dict[str, Any]", merge_patch(metadata, copy_json(dict(patch))))
    return validate_metadata(patched)
