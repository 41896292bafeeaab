"""The rows that say who may do what, on an SQL database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from ...lifecycle import Status
from ...principals.oauth import OAuthRecord
from ...principals.revocations import RevocationRecord
from ...principals.rules import (
    Membership,
    PolicyLimits,
    PolicyTarget,
    PrincipalRecord,
    PrincipalSummary,
)
from ...records import CredentialRecord, SessionRecord, ShareRecord, ShareRights
from .. import rows
from ..transactions import Transactions
from . import credentials, oauth, principals, revocations, shares


class AccessStore:
    """The `AccessRecords` of an SQL database; see there for the contract of each method."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add_credential(self, record: CredentialRecord, *, most: int) -> None:
        row = rows.credential_row(record)
        await self._transactions.write(partial(credentials.add, row=row, most=most))

    async def credential(self, digest: str) -> CredentialRecord | None:
        return await self._transactions.read(partial(credentials.credential, digest=digest))

    async def add_credential_once(self, record: CredentialRecord, *, most: int) -> bool:
        row = rows.credential_row(record)
        return bool(
            await self._transactions.write(partial(credentials.add_once, row=row, most=most))
        )

    async def exchange_credential(
        self, digest: str, login: CredentialRecord, *, most: int
    ) -> CredentialRecord | None:
        # A guess costs no write.
        if await self.credential(digest) is None:
            return None
        operation = partial(
            credentials.exchange, digest=digest, login=rows.credential_row(login), most=most
        )
        return cast("CredentialRecord | None", await self._transactions.write(operation))

    async def open_credentials(self, digests: Sequence[str]) -> set[str]:
        return await self._transactions.read(partial(credentials.open_digests, digests=digests))

    async def links(self, session_id: str, now: float) -> list[CredentialRecord]:
        return await self._transactions.read(
            partial(credentials.links, session_id=session_id, now=now)
        )

    async def delete_link(self, session_id: str, link: str) -> CredentialRecord | None:
        operation = partial(credentials.delete_link, session_id=session_id, link=link)
        return cast("CredentialRecord | None", await self._transactions.write(operation))

    async def delete_login(self, digest: str) -> None:
        await self._transactions.write(partial(credentials.delete_login, digest=digest))

    async def delete_logins(self, principal: str | None, link: str | None) -> None:
        await self._transactions.write(
            partial(credentials.delete_logins, principal=principal, link=link)
        )

    async def delete_expired_credentials(self, now: float) -> None:
        if await self._transactions.read(partial(credentials.has_expired, now=now)):
            await self._transactions.write(partial(credentials.delete_expired, now=now))
        if await self._transactions.read(partial(oauth.has_expired, now=now)):
            await self._transactions.write(partial(oauth.delete_expired, now=now))

    async def add_oauth(self, record: OAuthRecord) -> bool:
        return bool(await self._transactions.write(partial(oauth.add, row=record.model_dump())))

    async def oauth_record(self, digest: str) -> OAuthRecord | None:
        return await self._transactions.read(partial(oauth.record, digest=digest))

    async def exchange_oauth(self, record: OAuthRecord, secret: str, now: float) -> bool:
        operation = partial(oauth.exchange, row=record.model_dump(), secret=secret, now=now)
        return bool(await self._transactions.write(operation))

    async def delete_oauth(self, digest: str) -> None:
        await self._transactions.write(partial(oauth.delete_one, digest=digest))

    async def put_share(self, record: ShareRecord, *, most: int) -> bool:
        row = rows.share_row(record)
        return bool(await self._transactions.write(partial(shares.put, row=row, most=most)))

    async def delete_share(self, session_id: str, grantee: str) -> bool:
        operation = partial(shares.delete_one, session_id=session_id, grantee=grantee)
        return bool(await self._transactions.write(operation))

    async def shares(self, session_id: str, now: float) -> list[ShareRecord]:
        return await self._transactions.read(
            partial(shares.of_session, session_id=session_id, now=now)
        )

    async def shared_owner(
        self, session_id: str, grantees: Sequence[str], rights: Sequence[ShareRights], now: float
    ) -> str | None:
        query = partial(
            shares.owner,
            session_id=session_id,
            grantees=grantees,
            rights=rights,
            now=now,
        )
        return await self._transactions.read(query)

    async def shared_sessions(
        self, grantees: Sequence[str], statuses: Sequence[Status], now: float, limit: int
    ) -> list[tuple[SessionRecord, ShareRights]]:
        query = partial(shares.sessions, grantees=grantees, statuses=statuses, now=now, limit=limit)
        return await self._transactions.read(query)

    async def changed_principals(self, after: int) -> list[PrincipalRecord]:
        return await self._transactions.read(partial(principals.changed, after=after))

    async def limit_principal(
        self, target: PolicyTarget, changes: Mapping[str, Any], now: float
    ) -> PolicyLimits:
        operation = partial(principals.limit, target=target, changes=changes, now=now)
        return cast("PolicyLimits", await self._transactions.write(operation))

    async def put_membership(
        self, target: PolicyTarget, membership: Membership, now: float
    ) -> None:
        operation = partial(
            principals.put_membership, target=target, membership=membership, now=now
        )
        await self._transactions.write(operation)

    async def principals(self) -> Sequence[PrincipalSummary]:
        return await self._transactions.read(principals.summaries)

    async def revoke(self, record: RevocationRecord) -> None:
        await self._transactions.write(partial(revocations.put, record=record))

    async def restore(self, owner: str) -> bool:
        return bool(await self._transactions.write(partial(revocations.restore, owner=owner)))

    async def revocations(self) -> list[RevocationRecord]:
        return await self._transactions.read(revocations.all_records)
