"""Sharing a session of one principal with another principal or with a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..core import Core
from ..errors import InvalidArgument, SessionClosed, SessionLimit
from ..lifecycle import Status
from ..live.directory import Directory
from ..records import Grantee, Principal, ShareRecord, ShareRights
from ..views import describe_share, describe_shared

if TYPE_CHECKING:
    from ..store.sql import SQLStore

MAX_SHARES: Final = 100
"""Shares of a session that have not expired."""
LONGEST_SECONDS: Final = 31_536_000.0
"""A year: the longest time of a share."""
RIGHTS: Final = {
    ShareRights.VIEW: (ShareRights.VIEW, ShareRights.USE),
    ShareRights.USE: (ShareRights.USE,),
}
"""The rights that include a right."""


class Sharing:
    """Shares the sessions of one registry; it lives as long as the registry. Shares are in the store only."""

    def __init__(self, core: Core, directory: Directory) -> None:
        self._core = core
        self._directory = directory

    async def share(
        self,
        principal: Principal,
        ref: str,
        grantee: Grantee,
        rights: ShareRights,
        seconds: float,
        *,
        namespace: str | None = None,
    ) -> ShareRecord:
        """Share a session; a second share with the same grantee replaces the first.

        Raises:
            SessionNotFound, SessionClosed, InvalidArgument: nothing was shared.
            SessionLimit: it has MAX_SHARES already.
        """
        record = await self._directory.find_record(principal, ref, namespace)
        if record.status in (Status.CLOSING, Status.CLOSED):
            raise SessionClosed("The session is closed.", session_id=record.id)
        now = self._core.clock.now()
        return await put_share(
            self._core.store, record.id, principal, grantee, rights, seconds, now
        )

    async def unshare(
        self, principal: Principal, ref: str, grantee: Grantee, *, namespace: str | None = None
    ) -> tuple[str, bool]:
        """End a share. Return the id of the session, and whether there was a share.

        Raises:
            SessionNotFound: as Directory.find_record() does.
        """
        record = await self._directory.find_record(principal, ref, namespace)
        return record.id, await self._core.store.access.delete_share(record.id, grantee.digest)

    async def shares(self, session_id: str) -> list[dict[str, Any]]:
        """Return the shares of a session as its owner sees them."""
        found = await self._core.store.access.shares(session_id, self._core.clock.now())
        return [describe_share(share) for share in found]

    async def owner(
        self, session_id: str, grantees: Sequence[Grantee], rights: ShareRights
    ) -> Principal | None:
        """Return the owner of a session that is shared with one of the grantees with these rights, else None."""
        digests = [grantee.digest for grantee in grantees]
        now = self._core.clock.now()
        owner = await self._core.store.access.shared_owner(session_id, digests, RIGHTS[rights], now)
        # Sessions that are kept while their owner is revoked are closed to others, too.
        if owner is None or owner in self._core.revoked:
            return None
        return Principal.of_key(owner)

    async def shared_with(
        self,
        grantees: Sequence[Grantee],
        limit: int,
        statuses: Sequence[Status] = tuple(Status),
    ) -> list[dict[str, Any]]:
        """Return the sessions that are shared with the grantees, each once with its highest rights, and their owners.

        At most `limit` shares count, and each owner has a fair part of them.
        """
        digests = [grantee.digest for grantee in grantees]
        now = self._core.clock.now()
        found: dict[str, dict[str, Any]] = {}
        access = self._core.store.access
        for record, rights in await access.shared_sessions(digests, statuses, now, limit):
            if record.owner in self._core.revoked:
                continue
            known = found.setdefault(record.id, describe_shared(record, rights))
            if rights is ShareRights.USE:
                known["rights"] = rights.value
        return list(found.values())


async def put_share(
    store: SQLStore,
    session_id: str,
    principal: Principal,
    grantee: Grantee,
    rights: ShareRights,
    seconds: float,
    now: float,
) -> ShareRecord:
    """Store a share of a session of a principal.

    Raises:
        InvalidArgument, SessionLimit: nothing was stored.
    """
    if not grantee.name.strip() or not (grantee.name + grantee.issuer).isprintable():
        raise InvalidArgument("The subject, group or issuer is empty or has control characters.")
    if grantee == Grantee.principal(principal):
        raise InvalidArgument("The session belongs to this principal.")
    share = ShareRecord(
        session_id=session_id,
        grantee=grantee,
        rights=rights,
        created_by=principal.key,
        created_at=now,
        expires_at=now + seconds,
    )
    if not await store.access.put_share(share, most=MAX_SHARES):
        raise SessionLimit(
            f"The session has {MAX_SHARES} shares.",
            session_id=session_id,
            recovery="End one of them with session_unshare.",
        )
    return share
