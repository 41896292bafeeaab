"""The logins of the console: one-time codes, the cookies that they are exchanged for, and links for other people.

The store holds them, so they outlive the process and count at every worker and node of the store. It has the SHA-256 of
each secret only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast

import anyio

from ..access.audit.recorder import NOBODY, Actor
from ..access.claims import VerifiedCaller
from ..access.config.auth import DEFAULT_ROLE, ROLES, Role
from ..access.login_cookies import csrf_token
from ..access.refusals import PrincipalRevoked
from ..access.scopes import CONTROL
from ..sessions.errors import SessionLimit, StoreUnavailable
from ..sessions.live.control_lease import user_of
from ..sessions.one_line import plain_name
from ..sessions.records import (
    LOCAL,
    CredentialKind,
    CredentialRecord,
    Grantee,
    Principal,
    SessionRecord,
)
from ..sessions.registry import Registry
from ..tools.own.own_tool import grantees_of

if TYPE_CHECKING:
    from ..sessions.store.sql import SQLStore

LOGIN: Final = "__Host-statehold"
"""The prefix has browsers accept it only with Secure, with the path / and for this host alone."""
GUEST: Final = "__Host-statehold-guest"
"""The cookie of a link, beside that of a login: opening a link ends no login."""

Rights = Literal["embed", "view", "control"]
"""The rights of a login; each includes those before it. EMBED: the picture of one session, in a page of others."""

CODE_SECONDS: Final = 120.0
"""Seconds in which the code of `statehold console` has to be used."""
LOGIN_SECONDS: Final = 12 * 3600.0
LINK_SECONDS: Final = 900.0
"""The longest life of a link, and of the login that it gives."""
CODE_BYTES: Final = 16
COOKIE_BYTES: Final = 32
MAX_LOGINS: Final = 100
"""Logins of one principal, codes of the user of this machine, and links to one session. Beyond them its oldest ends."""
MAX_STREAMS: Final = 100
"""Open streams of one person in this process, over all its logins, and of all guests of one owner together."""
MAX_GUEST_STREAMS: Final = 25
"""Those of one guest, which leaves some to the other guests of the owner."""
CHECK_SECONDS: Final = 0.5
"""Seconds between two looks at the store for the logins in use, and so the time until an open stream ends."""
FRESH_SECONDS: Final = 1.0
"""Seconds for which a request trusts the last look."""
SEEN_SECONDS: Final = 60.0
"""Seconds after its last request for which a login is in use."""

NAME_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """The person behind a login, and what it may do."""

    name: str
    """The person in words, as the agent and other people see it."""
    principal: Principal | None = None
    """The owner whose sessions exist for this user. None: those of all owners, as for the commands of this machine."""
    rights: Rights = "control"
    session_id: str | None = None
    """The one session that exists for the user of a link."""
    link: str | None = None
    """The id of the link by which a guest came."""
    role: Role = DEFAULT_ROLE
    groups: tuple[str, ...] = ()
    """The groups of the person at its issuer."""

    @property
    def key(self) -> str:
        """Identifies the person over several logins: the user of this machine, a principal, or the guest of a link."""
        if self.link is not None:
            return guest_key(self.link)
        return "machine" if self.owner is None else user_of(self.owner)

    @property
    def is_guest(self) -> bool:
        """Whether the user came by a link."""
        return self.session_id is not None

    @property
    def is_machine_user(self) -> bool:
        """Whether it is the user of this machine."""
        return self.principal is None and not self.is_guest

    def has_role(self, role: Role) -> bool:
        """Whether the user may do what a role allows. The user of this machine may do everything."""
        return self.is_machine_user or ROLES.index(self.role) >= ROLES.index(role)

    @property
    def owner(self) -> str | None:
        """The owner to whom the user is restricted, as the store keeps it."""
        return None if self.principal is None else self.principal.key

    @property
    def grantees(self) -> list[Grantee]:
        """Those whose shares the user has: itself and its groups. A guest and the user of the machine have none."""
        if self.principal is None or self.is_guest:
            return []
        return grantees_of(self.principal, self.groups)

    def actor(self, address: str) -> Actor:
        """Return the user as the audit log has it."""
        principal = self.principal or LOCAL
        return Actor(principal=principal, name=self.name, transport="console", address=address)

    def may_see(self, record: SessionRecord) -> bool:
        """Whether a session exists for the user."""
        return self.session_id in (None, record.id) and self.owner in (None, record.owner)


def stranger(address: str, principal: Principal = NOBODY) -> Actor:
    """Return the actor of a request without a login. Its principal is known if its token is right."""
    return Actor(principal=principal, transport="console", address=address)


@dataclass(eq=False, slots=True)
class Login:
    """A login as this process knows it, until it ends: by its time, by a logout, or by the revocation of its link."""

    id: str
    user: ConsoleUser
    csrf: str
    expires_at: float
    digest: str
    checked_at: float
    """When the store was last seen to have it."""
    seen_at: float
    """When its last request came."""
    token: str | None = None
    """The digest of the bearer token that the person gave; None for a code."""
    streams: int = 0
    """Its open streams in this process."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when it ends before its time."""


class Logins:
    """The codes, logins and links of a store, as one process uses them.

    `machine_user` is the user of codes that `statehold console` shows. `clock` returns seconds since 1970. While logins
    are in use here, one task looks at the store for all of them. A login with a bearer token lasts while `is_valid` is true
    for the digest of that token and
    the role of the login.
    """

    def __init__(
        self,
        store: SQLStore,
        registry: Registry,
        machine_user: ConsoleUser,
        *,
        clock: Callable[[], float] | None = None,
        is_valid: Callable[[str, Role], bool] | None = None,
    ) -> None:
        self.clock = clock or registry.core.clock.now
        self._is_valid = is_valid
        self._store = store
        self._registry = registry
        self._machine_user = machine_user
        self._known: dict[str, Login] = {}
        """The logins that were in use lately, by their digests."""
        self._streams = Counter[str]()
        """The open streams of each person, and of the guests of each owner."""
        self._is_watching = False

    @contextmanager
    def stream(self, login: Login, owner: str) -> Generator[None]:
        """Count a stream of a login while the block runs. `owner` is the key of the owner of a guest's session.

        Raises:
            SessionLimit: the person, or the guests of the owner, have MAX_STREAMS, or the guest has MAX_GUEST_STREAMS.
        """
        most = {login.user.key: MAX_STREAMS}
        if login.user.is_guest:
            most = {login.user.key: MAX_GUEST_STREAMS, f"guests of {owner}": MAX_STREAMS}
        if any(self._streams[payer] >= count for payer, count in most.items()):
            raise SessionLimit(
                "Too many pictures and lists of this person, or of the guests of its host, are open.",
                retry_after=5.0,
                recovery="Close some of the pages that show them.",
            )
        self._streams.update(most.keys())
        login.streams += 1
        try:
            yield
        finally:
            login.streams -= 1
            for payer in most:
                self._streams[payer] -= 1
                if not self._streams[payer]:
                    del self._streams[payer]

    async def mint_code(self) -> str:
        """Return a new one-time code for the user of this machine."""
        code, now = secrets.token_urlsafe(CODE_BYTES), self.clock()
        record = self._record(
            CredentialKind.CODE, _digest(code), now, now + CODE_SECONDS, self._machine_user
        )
        await self._store.access.add_credential(record, most=MAX_LOGINS)
        return code

    async def look(self, code: str) -> ConsoleUser | None:
        """Return the user of the login that a code would give, None if it is unknown, used or expired. The code stays."""
        record = await self._store.access.credential(_digest(code))
        if record is None or record.kind not in (CredentialKind.CODE, CredentialKind.LINK):
            return None
        is_open = record.used_at is None and self.clock() < record.expires_at
        return _user_of(record) if is_open else None

    async def exchange(self, code: str) -> tuple[str, Login] | None:
        """Return the cookie and the login of a code, None if it is unknown, used or expired. The code ends with it."""
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        login = await self._store.access.exchange_credential(
            _digest(code), self._login_record(cookie, self._machine_user), most=MAX_LOGINS
        )
        return None if login is None else (cookie, self._keep(login, cookie))

    async def open(
        self, user: ConsoleUser, token: str | None = None, *, ends_by: float | None = None
    ) -> tuple[str, Login]:
        """Open a login, and return its cookie with it.

        `token` is the digest of the static token that it depends on, and `ends_by` the end of an access token.

        Raises:
            PrincipalRevoked: the access of the user is revoked.
        """
        if user.principal is not None and self._is_revoked(user):
            raise PrincipalRevoked(user.principal)
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        record = self._login_record(cookie, user).model_copy(update={"created_by": token})
        if ends_by is not None and ends_by < record.expires_at:
            record = record.model_copy(update={"expires_at": ends_by})
        await self._store.access.add_credential(record, most=MAX_LOGINS)
        return cookie, self._keep(record, cookie)

    async def use_attempt(self, digest: str, user: ConsoleUser, seconds: float) -> bool:
        """Note that an issuer's answer to a login, which named a user, was used. Return False if it was used before."""
        now = self.clock()
        record = CredentialRecord(
            id=secrets.token_hex(8),
            kind=CredentialKind.ATTEMPT,
            digest=digest,
            principal=user.owner,
            created_at=now,
            expires_at=now + seconds,
        )
        return await self._store.access.add_credential_once(record, most=MAX_LOGINS)

    async def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie, None if there is none or it has ended."""
        if not cookie:
            return None
        digest = _digest(cookie)
        login, now = self._known.get(digest), self.clock()
        if login is None or now - login.checked_at >= FRESH_SECONDS:
            record = await self._store.access.credential(digest)
            if record is None or record.kind is not CredentialKind.LOGIN:
                self._forget(digest)
                return None
            login = self._keep(record, cookie)
            login.checked_at = now
        if now >= login.expires_at or not self._has_token(login) or self._is_revoked(login.user):
            self._forget(digest)
            return None
        login.seen_at = now
        self._watch()
        return login

    async def end(self, login: Login) -> None:
        """End a login and its open streams at once. A second call has no effect."""
        await self._store.access.delete_login(login.digest)
        self._forget(login.digest)

    async def end_all(self, user: ConsoleUser) -> None:
        """End all logins of a user, wherever they are in use."""
        await self._store.access.delete_logins(user.owner, user.link)
        for login in list(self._known.values()):
            if (login.user.owner, login.user.link) == (user.owner, user.link):
                self._forget(login.digest)

    async def create_link(
        self, session_id: str, rights: Rights, seconds: float, created_by: str
    ) -> tuple[CredentialRecord, str]:
        """Return a new link to a session, and its code."""
        code, now = secrets.token_urlsafe(CODE_BYTES), self.clock()
        guest = ConsoleUser(f"a guest of {created_by}", rights=rights, session_id=session_id)
        expires_at = now + min(seconds, LINK_SECONDS)
        record = self._record(CredentialKind.LINK, _digest(code), now, expires_at, guest)
        link = record.model_copy(update={"created_by": created_by})
        await self._store.access.add_credential(link, most=MAX_LOGINS)
        return link, code

    async def links(self, session_id: str) -> list[CredentialRecord]:
        """Return the links to a session that have not expired."""
        return await self._store.access.links(session_id, self.clock())

    async def revoke(self, session_id: str, link: str) -> CredentialRecord | None:
        """End a link and its login at once. Return the link, None if the session has none with this id."""
        record = await self._store.access.delete_link(session_id, link)
        for login in list(self._known.values()):
            if record is not None and login.user.link == link:
                self._forget(login.digest)
        return record

    def is_in_use(self) -> bool:
        """Whether a page of the console is open: a login has an open stream here, or sent a request in the last minute."""
        now = self.clock()
        return any(_is_in_use(login, now) for login in self._known.values())

    def _login_record(self, cookie: str, user: ConsoleUser) -> CredentialRecord:
        now = self.clock()
        return self._record(CredentialKind.LOGIN, _digest(cookie), now, now + LOGIN_SECONDS, user)

    def _record(
        self, kind: CredentialKind, digest: str, now: float, expires_at: float, user: ConsoleUser
    ) -> CredentialRecord:
        return CredentialRecord(
            id=secrets.token_hex(8),
            kind=kind,
            digest=digest,
            name=user.name,
            principal=user.owner,
            rights=user.rights,
            session_id=user.session_id,
            link=user.link,
            created_at=now,
            expires_at=expires_at,
            role=user.role,
            groups=user.groups,
        )

    def _keep(self, record: CredentialRecord, cookie: str) -> Login:
        """Return the login of a record, the one that is known already if there is one."""
        login = self._known.get(record.digest)
        if login is None:
            now = self.clock()
            user, csrf = _user_of(record), csrf_token(cookie)
            login = Login(record.id, user, csrf, record.expires_at, record.digest, now, now)
            login.token = record.created_by
            self._known[record.digest] = login
            self._watch()
        return login

    def _has_token(self, login: Login) -> bool:
        """Whether the bearer token of a login, if it has one, is valid."""
        if login.token is None:
            return True
        return self._is_valid is not None and self._is_valid(login.token, login.user.role)

    def _is_revoked(self, user: ConsoleUser) -> bool:
        return user.owner in self._registry.core.revoked

    def _forget(self, digest: str) -> None:
        login = self._known.pop(digest, None)
        if login is not None:
            login.ended.set()

    def _watch(self) -> None:
        if not self._is_watching and self._registry.is_open:
            self._is_watching = True
            self._registry.spawn(self._look_while_in_use)

    async def _look_while_in_use(self) -> None:
        try:
            while self._known:
                await anyio.sleep(CHECK_SECONDS)
                # The next look may find the store again.
                with suppress(StoreUnavailable):
                    await self._look()
        finally:
            self._is_watching = False

    async def _look(self) -> None:
        """End the logins that another process ended, or whose token did, and forget those that are not in use any more."""
        now = self.clock()
        for login in list(self._known.values()):
            is_used = _is_in_use(login, now)
            if not is_used or not self._has_token(login) or self._is_revoked(login.user):
                self._forget(login.digest)
        logins = list(self._known.values())
        if not logins:
            return
        found = await self._store.access.open_credentials([login.digest for login in logins])
        for login in logins:
            if login.digest in found:
                login.checked_at = now
            else:
                self._forget(login.digest)


def guest_key(link: str) -> str:
    """Return the key of the guest of a link."""
    return f"link {link}"


def _is_in_use(login: Login, now: float) -> bool:
    return login.streams > 0 or now - login.seen_at < SEEN_SECONDS


def _user_of(record: CredentialRecord) -> ConsoleUser:
    principal = None if record.principal is None else Principal.of_key(record.principal)
    rights = cast("Rights", record.rights)
    role = cast("Role", record.role)
    return ConsoleUser(
        name=record.name,
        principal=principal,
        rights=rights,
        session_id=record.session_id,
        link=record.link,
        role=role,
        groups=record.groups,
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def user_of_caller(caller: VerifiedCaller) -> ConsoleUser:
    """Return the user of a verified token."""
    return ConsoleUser(
        f"{plain_name(caller.principal.subject, NAME_CHARACTERS)} at the console",
        caller.principal,
        "control" if CONTROL in caller.scopes else "view",
        role=caller.role,
        groups=caller.groups,
    )
