"""The logins of people at the authorization server, and the codes and tokens that name them.

A login is one record of the store. Codes and refresh tokens have the id of their login and a secret, of which the record has
the digest. Only the last secret is accepted; an earlier one, known by its mark, shows that two parties have it, and ends the
login. The refresh token before the last gets the same answer again for a short time, since two processes of a client may use
it at once, or its answer was lost. A code works once (RFC 6749, 4.1.2). Access tokens name their login in sealed form, so
that they end with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from cryptography.fernet import Fernet, InvalidToken
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel, ConfigDict

from ...sessions.errors import SessionLimit, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.live.budget import Budget
from ...sessions.live.session import client_address
from ...sessions.records import Principal
from ...sessions.store.people.credentials import OAuthRecord
from ..claims import ClaimChecks, VerifiedCaller
from ..config.auth import FacadeSettings, Role
from ..refusals import Backoff, TokenInvalid, VerifierUnavailable, network_of
from ..scopes import ADMIN, USE, scopes_in
from .clients import LoginRequest

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

ACCESS_PREFIX: Final = "sho_"
CODE_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 10
"""Seconds for which a refresh token that was exchanged gets the same tokens again."""
MAX_GUESSES: Final = 32
"""Reads of the store at a time for secrets that may be guesses."""
MAX_WAITING_GUESSES: Final = 1000
WAIT_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 3600
_VALUE_CHARACTERS: Final = 43
"""The characters of a secret before its mark."""

logger = logging.getLogger("statehold.server")


class Seal:
    """Encrypts and signs documents of one purpose. The nodes have the same `secret`, so they read each other's."""

    def __init__(self, secret: str, purpose: str) -> None:
        key = hmac.digest(
            secret.encode(errors="surrogatepass"), f"statehold facade {purpose}".encode(), "sha256"
        )
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def seal(self, document: JSON, now: float) -> str:
        """Return a text of URL characters."""
        body = json.dumps(document, separators=(",", ":")).encode()
        return self._fernet.encrypt_at_time(body, int(now)).decode().rstrip("=")

    def open(self, text: str, now: float, *, seconds: int) -> JSON | None:
        """Return the document of a text that is at most `seconds` old, else None."""
        try:
            padded = text + "=" * (-len(text) % 4)
            body = self._fernet.decrypt_at_time(padded.encode(), seconds, int(now))
        except (InvalidToken, ValueError):
            return None
        return cast("JSON", json.loads(body))


class FacadeLogin(BaseModel):
    """A login, as its record has it."""

    model_config = ConfigDict(frozen=True)

    issuer: str
    subject: str
    groups: list[str]
    client_id: str
    scopes: list[str]
    resource: str
    ends_at: float
    request: LoginRequest | None = None
    """The request whose code was not exchanged yet."""
    is_refreshable: bool = True
    answer: str = ""
    """The tokens for which the last refresh token was exchanged, sealed with that refresh token."""

    @property
    def owner(self) -> str:
        """The key of the person."""
        return Principal(issuer=self.issuer, subject=self.subject).key


class StoredLogin:
    """A login of the store, with its id, the digest of its secret, and the secret with which it was found."""

    def __init__(self, login_id: str, record: OAuthRecord, presented: str) -> None:
        self.id = login_id
        self.secret = record.secret
        self.presented = presented
        self.expires_at = record.expires_at
        self.login = FacadeLogin.model_validate_json(record.document)


class FacadeLogins:
    """Opens, exchanges, checks and ends logins. Its methods raise StoreUnavailable."""

    def __init__(
        self, store: SQLStore, settings: FacadeSettings, checks: ClaimChecks, secret: str
    ) -> None:
        self._store = store
        self._settings = settings
        self._checks = checks
        self._access = Seal(secret, "access tokens")
        self._backoff = Backoff()
        self._guesses = Budget(
            MAX_GUESSES, queue=MAX_WAITING_GUESSES, queue_seconds=WAIT_SECONDS, shared=True
        )
        self._marks = hmac.new(
            secret.encode(errors="surrogatepass"), b"statehold secrets", "sha256"
        )

    async def open(self, person: VerifiedCaller, request: LoginRequest, now: float) -> str:
        """Open a login of a person, and return its code."""
        login = FacadeLogin(
            issuer=person.principal.issuer,
            subject=person.principal.subject,
            groups=list(person.groups),
            client_id=request.client_id,
            scopes=request.scopes,
            resource=request.resource,
            ends_at=now + self._settings.login_seconds,
            request=request,
        )
        return await self._add(login, now + CODE_SECONDS)

    async def open_asserted(
        self, person: VerifiedCaller, scopes: Sequence[str], now: float
    ) -> OAuthToken:
        """Open a login by an identity assertion, and return its only token."""
        login = FacadeLogin(
            issuer=person.principal.issuer,
            subject=person.principal.subject,
            groups=list(person.groups),
            client_id=person.principal.client_id,
            scopes=list(scopes),
            resource=person.resource or "",
            ends_at=now + self._settings.access_token_seconds,
            is_refreshable=False,
        )
        code = await self._add(login, login.ends_at)
        return self._tokens(login, code.partition(".")[0], login.scopes, None, now)

    async def use_assertion(self, issuer: str, assertion_id: str, expires_at: float) -> bool:
        """Use an identity assertion. Return False if it was used before."""
        digest = _digest(f"assertion {issuer} {assertion_id}")
        return await self._store.access.add_oauth(
            OAuthRecord(digest=digest, secret="", owner="", document="{}", expires_at=expires_at)
        )

    async def find(self, text: str, now: float) -> StoredLogin | None:
        """Return the login of a code or a refresh token. One that was exchanged before ends the login; the refresh token
        before the last does not for a short time, and a secret that this server never gave to the login does nothing.
        """
        login_id, _, secret = text.partition(".")
        stored = await self._load_presented(login_id, now, secret)
        if stored is None:
            return None
        if _is_current(stored) or _former_answer(stored, now) is not None:
            return stored
        if self._is_of(login_id, secret):
            await self._end_reused(stored)
        return None

    async def exchange(
        self, stored: StoredLogin, scopes: Sequence[str], now: float
    ) -> OAuthToken | None:
        """Exchange the code or the refresh token with which a login was found. None: it was exchanged meanwhile.

        A refresh token that was exchanged a short time ago gets the same tokens again.
        """
        former = _former_answer(stored, now)
        if former is not None:
            return former
        login = stored.login.model_copy(update={"request": None, "answer": ""})
        secret = self._new_secret(stored.id)
        refresh_token = f"{stored.id}.{secret}" if login.is_refreshable else None
        tokens = self._tokens(login, stored.id, scopes, refresh_token, now)
        if stored.login.request is None:
            login = login.model_copy(update={"answer": _sealed_answer(tokens, stored, now)})
        record = OAuthRecord(
            digest=_digest(stored.id),
            secret=_digest(secret),
            owner=login.owner,
            document=login.model_dump_json(exclude_none=True),
            expires_at=login.ends_at,
        )
        if await self._store.access.exchange_oauth(record, stored.secret, now):
            return tokens
        latest = await self._load(stored.id, now, stored.presented)
        former = None if latest is None else _former_answer(latest, now)
        if former is None:
            await self._end_reused(stored)
        return former

    async def caller(self, token: str, now: float) -> VerifiedCaller:
        """Return the caller of an access token, which has ACCESS_PREFIX.

        Raises:
            TokenInvalid: the token is wrong or has expired, or its login has ended.
            VerifierUnavailable: the store cannot be read.
        """
        text = token.removeprefix(ACCESS_PREFIX)
        document = self._access.open(text, now, seconds=_LONGEST_SECONDS)
        if document is None:
            raise TokenInvalid("it is no token of auth.facade")
        expires_at = int(document["expires_at"])
        if now >= expires_at:
            raise TokenInvalid("it has expired")
        try:
            stored = await self._load(document["login"], now)
        except StoreUnavailable as error:
            raise VerifierUnavailable(str(error)) from None
        if stored is None or stored.login.issuer != self._settings.issuer:
            raise TokenInvalid("its login has ended")
        login = stored.login
        return VerifiedCaller(
            Principal(issuer=login.issuer, subject=login.subject, client_id=login.client_id[:255]),
            scopes_in(document["scopes"]),
            groups=login.groups,
            role=self._checks.role(login.groups),
            expires_at=expires_at,
        )

    async def end(self, token: str, client_id: str, now: float) -> None:
        """End the login of an access token or a refresh token of a client, also of one that was exchanged."""
        login_id, _, secret = token.partition(".")
        if token.startswith(ACCESS_PREFIX):
            text = token.removeprefix(ACCESS_PREFIX)
            document = self._access.open(text, now, seconds=_LONGEST_SECONDS)
            stored = None if document is None else await self._load(document["login"], now)
        else:
            stored = await self._load_presented(login_id, now, secret)
        if stored is None or stored.login.client_id != client_id:
            return
        if token.startswith(ACCESS_PREFIX) or _is_current(stored) or self._is_of(login_id, secret):
            await self._store.access.delete_oauth(_digest(stored.id))

    async def _add(self, login: FacadeLogin, expires_at: float) -> str:
        login_id = secrets.token_urlsafe(16)
        secret = self._new_secret(login_id)
        record = OAuthRecord(
            digest=_digest(login_id),
            secret=_digest(secret),
            owner=login.owner,
            document=login.model_dump_json(exclude_none=True),
            expires_at=expires_at,
        )
        await self._store.access.add_oauth(record)
        return f"{login_id}.{secret}"

    async def _load(self, login_id: str, now: float, secret: str = "") -> StoredLogin | None:
        record = await self._store.access.oauth_record(_digest(login_id))
        if record is None or record.expires_at <= now or not record.secret:
            return None
        return StoredLogin(login_id, record, secret)

    async def _load_presented(self, login_id: str, now: float, secret: str) -> StoredLogin | None:
        """Load a login for a secret that a client presents. A secret without a mark is a guess, or of an earlier version:
        each network has a share of the reads for these, and waits before each if its last ones were wrong.

        Raises:
            StoreUnavailable: too many of them wait.
        """
        if self._is_of(login_id, secret):
            return await self._load(login_id, now, secret)
        if not secret:
            return None
        network = network_of(client_address.get())
        try:
            async with self._guesses.place(network):
                await self._backoff.hold(network)
                stored = await self._load(login_id, now, secret)
                if stored is None or not _is_current(stored):
                    self._backoff.fail(network, "wrong login", "(a code or a refresh token)")
        except SessionLimit:
            raise StoreUnavailable("Too many wrong codes and refresh tokens wait.") from None
        return stored

    async def _end_reused(self, stored: StoredLogin) -> None:
        logger.warning(
            "a login of %s ends: a code or a refresh token of it was used twice",
            stored.login.subject,
        )
        await self._store.access.delete_oauth(_digest(stored.id))

    def _new_secret(self, login_id: str) -> str:
        """Return a secret with a mark, by which it is known later as one of the login."""
        value = secrets.token_urlsafe(32)
        return value + self._mark(login_id, value)

    def _is_of(self, login_id: str, secret: str) -> bool:
        """Whether this server gave a secret to a login, at any time."""
        value, mark = secret[:_VALUE_CHARACTERS], secret[_VALUE_CHARACTERS:]
        return hmac.compare_digest(
            mark.encode(errors="surrogatepass"), self._mark(login_id, value).encode()
        )

    def _mark(self, login_id: str, value: str) -> str:
        mark = self._marks.copy()
        mark.update(f"{login_id}.{value}".encode(errors="surrogatepass"))
        return mark.hexdigest()[:32]

    def _tokens(
        self,
        login: FacadeLogin,
        login_id: str,
        scopes: Sequence[str],
        refresh_token: str | None,
        now: float,
    ) -> OAuthToken:
        scopes = allowed_scopes(scopes, self._checks.role(login.groups))
        expires_at = int(min(now + self._settings.access_token_seconds, login.ends_at))
        document = {"login": login_id, "scopes": scopes, "expires_at": expires_at}
        return OAuthToken(
            access_token=ACCESS_PREFIX + self._access.seal(document, now),
            expires_in=expires_at - int(now),
            scope=" ".join(scopes),
            refresh_token=refresh_token,
        )


def allowed_scopes(scopes: Sequence[str], role: Role) -> list[str]:
    """Return those of the scopes that a person may give to a client. ADMIN is for operators and admins."""
    allowed = [scope for scope in scopes if scope != ADMIN or role != "user"]
    return allowed or [USE]


def _sealed_answer(tokens: OAuthToken, stored: StoredLogin, now: float) -> str:
    """Return tokens in a form that only the refresh token reads with which a login was found."""
    document = {"expires_at": int(now) + (tokens.expires_in or 0)}
    document |= tokens.model_dump(include={"access_token", "refresh_token", "scope"})
    return Seal(stored.presented, "answers").seal(document, now)


def _former_answer(stored: StoredLogin, now: float) -> OAuthToken | None:
    """Return the tokens for which the refresh token was exchanged with which a login was found, None after a short time."""
    seal = Seal(stored.presented, "answers")
    document = seal.open(stored.login.answer, now, seconds=GRACE_SECONDS)
    if document is None:
        return None
    expires_in = max(0, document.pop("expires_at") - int(now))
    return OAuthToken(**document, expires_in=expires_in)


def _is_current(stored: StoredLogin) -> bool:
    """Whether a login was found with its secret."""
    return hmac.compare_digest(_digest(stored.presented), stored.secret)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
