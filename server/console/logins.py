"""The logins of the console: one-time codes, the cookies that they are exchanged for, and links for other people.

All of them live in the memory of this process, and end with it. Another worker or node needs a login of its own. Of codes
and cookies only the SHA-256 is kept.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

import anyio

from ...sessions.records import Principal, SessionRecord

Rights = Literal["view", "control"]

CODE_SECONDS: Final = 120.0
"""Seconds in which the code of `statehold console` has to be used."""
LOGIN_SECONDS: Final = 12 * 3600.0
LINK_SECONDS: Final = 900.0
"""The longest life of a link, and of the login that it gives."""
CODE_BYTES: Final = 16
COOKIE_BYTES: Final = 32
MOST: Final = 1000
"""Logins, codes and links of each kind at once; beyond them the oldest ends."""

V = TypeVar("V")


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

    @property
    def is_guest(self) -> bool:
        """Whether the user came by a link."""
        return self.session_id is not None

    @property
    def is_operator(self) -> bool:
        """Whether it is the user of this machine."""
        return self.principal is None and not self.is_guest

    @property
    def owner(self) -> str | None:
        """The owner to whom the user is restricted, as the store keeps it."""
        return None if self.principal is None else self.principal.key

    def may_see(self, record: SessionRecord) -> bool:
        """Whether a session exists for the user."""
        return self.session_id in (None, record.id) and self.owner in (None, record.owner)


@dataclass(eq=False, slots=True)
class Login:
    """A login until it ends: by its time, by a logout, or by the revocation of its link."""

    user: ConsoleUser
    csrf: str
    expires_at: float
    digest: bytes
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when it ends before its time."""


@dataclass(eq=False, slots=True)
class SessionLink:
    """A link for another person to one session. Its code can be used once."""

    id: str
    session_id: str
    rights: Rights
    created_by: str
    expires_at: float
    code: bytes
    login: Login | None = None
    """The login that the code was exchanged for."""


class Logins:
    """The codes, logins and links of one process. `clock` returns seconds that only rise."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._codes: dict[bytes, float] = {}
        self._logins: dict[bytes, Login] = {}
        self._links: dict[str, SessionLink] = {}

    def mint_code(self) -> str:
        """Return a new one-time code for the user of this machine."""
        code = secrets.token_urlsafe(CODE_BYTES)
        _insert(self._codes, _digest(code), self.clock() + CODE_SECONDS)
        return code

    def exchange(self, code: str, machine_user: ConsoleUser) -> tuple[str, Login] | None:
        """Return the cookie and the login of a code, None if it is unknown, used or expired. The code ends with it."""
        digest, now = _digest(code), self.clock()
        expires_at = self._codes.pop(digest, None)
        if expires_at is not None:
            return self.open(machine_user) if now < expires_at else None
        link = next((link for link in self._links.values() if link.code == digest), None)
        if link is None or link.login is not None or now >= link.expires_at:
            return None
        user = ConsoleUser(
            f"a guest of {link.created_by}", rights=link.rights, session_id=link.session_id
        )
        cookie, link.login = self.open(user, expires_at=link.expires_at)
        return cookie, link.login

    def open(self, user: ConsoleUser, *, expires_at: float | None = None) -> tuple[str, Login]:
        """Open a login, and return its cookie with it."""
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        if expires_at is None:
            expires_at = self.clock() + LOGIN_SECONDS
        login = Login(user, secrets.token_urlsafe(CODE_BYTES), expires_at, _digest(cookie))
        oldest = _insert(self._logins, login.digest, login)
        if oldest is not None:
            oldest.ended.set()
        return cookie, login

    def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie, None if there is none or it has ended."""
        login = self._logins.get(_digest(cookie))
        if login is not None and self.clock() >= login.expires_at:
            self.end(login)
            return None
        return login

    def end(self, login: Login) -> None:
        """End a login and its open streams at once. A second call has no effect."""
        self._logins.pop(login.digest, None)
        login.ended.set()

    def create_link(
        self, session_id: str, rights: Rights, seconds: float, created_by: str
    ) -> tuple[SessionLink, str]:
        """Return a new link to a session, and its code."""
        code = secrets.token_urlsafe(CODE_BYTES)
        expires_at = self.clock() + min(seconds, LINK_SECONDS)
        link_id = secrets.token_hex(8)
        link = SessionLink(link_id, session_id, rights, created_by, expires_at, _digest(code))
        oldest = _insert(self._links, link.id, link)
        if oldest is not None and oldest.login is not None:
            self.end(oldest.login)
        return link, code

    def links(self, session_id: str) -> list[SessionLink]:
        """Return the links to a session that have not expired."""
        now = self.clock()
        for link in [link for link in self._links.values() if link.expires_at <= now]:
            del self._links[link.id]
        return [link for link in self._links.values() if link.session_id == session_id]

    def revoke(self, session_id: str, link_id: str) -> bool:
        """End a link and its login at once. Return False if the session has no such link."""
        link = self._links.get(link_id)
        if link is None or link.session_id != session_id:
            return False
        del self._links[link_id]
        if link.login is not None:
            self.end(link.login)
        return True


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def _insert(values: dict[bytes, V] | dict[str, V], key: bytes | str, value: V) -> V | None:
    """Add a value. Return the oldest one if it had to go for it."""
    kept: dict[bytes | str, V] = values  # pyright: ignore[reportAssignmentType]
    oldest = kept.pop(next(iter(kept))) if len(kept) >= MOST else None
    kept[key] = value
    return oldest


__all__ = [
    "CODE_SECONDS",
    "LINK_SECONDS",
    "LOGIN_SECONDS",
    "ConsoleUser",
    "Login",
    "Logins",
    "Rights",
    "SessionLink",
]
