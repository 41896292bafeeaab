"""The rows that say who may do what, as methods of the store."""

from __future__ import annotations

from ...records import CredentialRecord
from ..transactions import Queries, read_method, write_method
from . import approvals as approval_rows
from . import credentials
from . import pins as pin_rows
from . import principals as principal_rows
from . import shares as share_rows


class AccessStore(Queries):
    """The console's codes, links and logins, the shares of sessions, the logins of the authorization server, and the
    memberships and revocations of principals, and the definitions that people have accepted of services.

    It lives as long as its store, and its methods have the same bounds and errors.
    """

    add_credential = write_method(credentials.add)
    add_credential_once = write_method(credentials.add_once)
    credential = read_method(credentials.credential)
    open_credentials = read_method(credentials.open_digests)
    links = read_method(credentials.links)
    delete_link = write_method(credentials.delete_link)
    delete_login = write_method(credentials.delete_login)
    delete_logins = write_method(credentials.delete_logins)

    async def exchange_credential(
        self, digest: str, login: CredentialRecord, *, most: int
    ) -> CredentialRecord | None:
        """Exchange a code for a login; see credentials.exchange()."""
        # A guess costs no write.
        if await self.credential(digest) is None:
            return None
        return await self._exchange(digest, login, most=most)

    _exchange = write_method(credentials.exchange)

    add_oauth = write_method(credentials.add_oauth)
    oauth_record = read_method(credentials.oauth_record)
    exchange_oauth = write_method(credentials.exchange_oauth)
    delete_oauth = write_method(credentials.delete_oauth)

    async def delete_expired(self, now: float) -> None:
        """Delete the credentials, OAuth records and approvals that have expired. It writes only if there are some."""
        if await self._have_expired(now):
            await self._delete_expired(now)

    _have_expired = read_method(credentials.have_expired)
    _delete_expired = write_method(credentials.delete_expired)

    put_share = write_method(share_rows.put)
    delete_share = write_method(share_rows.delete_one)
    shares = read_method(share_rows.of_session)
    shared_owner = read_method(share_rows.owner)
    shared_sessions = read_method(share_rows.sessions)

    changed_principals = read_method(principal_rows.changed)
    membership = read_method(principal_rows.membership)
    put_membership = write_method(principal_rows.put_membership)
    principals = read_method(principal_rows.summaries)

    revoke = write_method(principal_rows.revoke)
    restore = write_method(principal_rows.restore)
    forget = write_method(principal_rows.forget)
    revocations = read_method(principal_rows.revocations)

    pin_digests = read_method(pin_rows.digests)
    fix_pins = write_method(pin_rows.fix)
    changed_pins = read_method(pin_rows.changes)
    count_changed_pins = read_method(pin_rows.count_changes)
    accept_pin = write_method(pin_rows.accept)

    request_approval = write_method(approval_rows.request)
    use_approval = write_method(approval_rows.use)
    decide_approval = write_method(approval_rows.decide)
    approval = read_method(approval_rows.find)
    open_approvals = read_method(approval_rows.page)
