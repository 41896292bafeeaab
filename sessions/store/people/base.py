"""The interface to the rows that say who may do what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

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


class AccessRecords(Protocol):
    """Rights of callers, as `Store.access`: the console's codes, links and logins, the shares of sessions, and the logins
    of the authorization server.

    It lives as long as its store, and its methods have the same bounds and errors.
    """

    async def add_credential(self, record: CredentialRecord, *, most: int) -> None:
        """Insert a credential, durable on return.

        Of more than `most` of its kind, its principal and its session, the oldest are deleted; others never are.
        """
        ...

    async def credential(self, digest: str) -> CredentialRecord | None:
        """Return a credential by the digest of its secret, whether it has expired or not."""
        ...

    async def add_credential_once(self, record: CredentialRecord, *, most: int) -> bool:
        """The same, unless there is a credential with its digest: False then. Of concurrent ones, one returns True."""
        ...

    async def exchange_credential(
        self, digest: str, login: CredentialRecord, *, most: int
    ) -> CredentialRecord | None:
        """Exchange a code, or the code of a link, for a login, and return the login. Of concurrent exchanges one wins.

        `login` has its id, its digest and its times; the rest comes from the code. A login by a link ends with the link.
        Returns None if there is no such code, or it was used, or expires at `login.created_at` or earlier.
        """
        ...

    async def open_credentials(self, digests: Sequence[str]) -> set[str]:
        """Return those digests that have a credential."""
        ...

    async def links(self, session_id: str, now: float) -> list[CredentialRecord]:
        """Return the links to a session that have not expired, the oldest first."""
        ...

    async def delete_link(self, session_id: str, link: str) -> CredentialRecord | None:
        """Delete a link and its login. Return the link, None if the session has none with this id."""
        ...

    async def delete_login(self, digest: str) -> None:
        """Delete a login; durable on return."""
        ...

    async def delete_logins(self, principal: str | None, link: str | None) -> None:
        """Delete all logins of a user: a principal by its key, a guest by the link, or the user of the machine."""
        ...

    async def delete_expired_credentials(self, now: float) -> None:
        """Delete the credentials and OAuth records that have expired. It writes only if there are some."""
        ...

    async def add_oauth(self, record: OAuthRecord) -> bool:
        """Insert a record, durable on return. Return False if there is one with its digest."""
        ...

    async def oauth_record(self, digest: str) -> OAuthRecord | None:
        """Return a record, whether it has expired or not."""
        ...

    async def exchange_oauth(self, record: OAuthRecord, secret: str, now: float) -> bool:
        """Replace a record that has not expired and whose secret still is `secret`. Of concurrent callers one gets True."""
        ...

    async def delete_oauth(self, digest: str) -> None:
        """Delete a record; durable on return."""
        ...

    async def put_share(self, record: ShareRecord, *, most: int) -> bool:
        """Store a share in place of one with the same grantee, durable on return. False: the session has `most` others."""
        ...

    async def delete_share(self, session_id: str, grantee: str) -> bool:
        """Delete the share with the digest of a grantee; durable on return. Return False if there is none."""
        ...

    async def shares(self, session_id: str, now: float) -> list[ShareRecord]:
        """Return the shares of a session that have not expired, the oldest first."""
        ...

    async def shared_owner(
        self, session_id: str, grantees: Sequence[str], rights: Sequence[ShareRights], now: float
    ) -> str | None:
        """Return the key of the owner of a session that is shared with one of the grantees, with one of the rights."""
        ...

    async def shared_sessions(
        self, grantees: Sequence[str], statuses: Sequence[Status], now: float, limit: int
    ) -> list[tuple[SessionRecord, ShareRights]]:
        """Return the sessions with one of the statuses that are shared with the grantees, those used last first, with the
        rights of each share. Beyond the limit, the owner with the most loses the one that was used longest ago.
        """
        ...

    async def changed_principals(self, after: int) -> list[PrincipalRecord]:
        """Return the policies and memberships with a higher version, in the order of their versions."""
        ...

    async def limit_principal(
        self, target: PolicyTarget, changes: Mapping[str, Any], now: float
    ) -> PolicyLimits:
        """Change limits of a subject, and return those it has now; durable on return. A change to None removes a limit."""
        ...

    async def put_membership(
        self, target: PolicyTarget, membership: Membership, now: float
    ) -> None:
        """Store the groups and the role of a principal; durable on return."""
        ...

    async def principals(self) -> Sequence[PrincipalSummary]:
        """Return the principals that have sessions, those that used theirs last first."""
        ...

    async def revoke(self, record: RevocationRecord) -> None:
        """Revoke a principal, and delete its logins and the links to its sessions; durable on return.

        It replaces an earlier revocation of the principal.
        """
        ...

    async def restore(self, owner: str) -> bool:
        """Delete the revocation of a principal; durable on return. Return False if there is none."""
        ...

    async def revocations(self) -> list[RevocationRecord]:
        """Return all revocations, also those that have ended by themselves, the oldest first."""
        ...
