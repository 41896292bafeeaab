"""The authorization server behind the handlers of the SDK."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    IdentityAssertionParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
)
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl, ConfigDict

from ...sessions.records import Principal
from ..claims import LEEWAY_SECONDS, ClaimChecks, VerifiedCaller, normal_resource
from ..config.auth import AuthSettings, IssuerSettings
from ..keys import SignedTokens, SigningKeys, parse_jwt
from ..refusals import RefusalLog, TokenInvalid, VerifierUnavailable
from ..scopes import USE
from .clients import (
    PREFIX,
    ClientDocuments,
    DocumentInvalid,
    FacadeClient,
    LoginRequest,
    registered_client,
    registered_id,
)
from .logins import FacadeLogins, Seal, StoredLogin

TYPE: Final = "oauth-id-jag+jwt"
LONGEST_SECONDS: Final = 3600.0
"""The longest lifetime of an accepted assertion: for so long its id is kept."""
_CHARACTERS: Final = 8192

REQUEST_SECONDS: Final = 600
"""Seconds that a person has to agree."""
REQUEST_CHARACTERS: Final = 2600
"""The length of a sealed request: it becomes a part of a cookie, which browsers keep up to 4,096 bytes."""
NO_RESOURCE: Final = "The resource is none of this server"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class IdentityAssertions:
    """Checks the assertions of one issuer, each of which is accepted once. `audience` is the URL of this server."""

    def __init__(
        self,
        issuer: IssuerSettings,
        keys: SigningKeys,
        checks: ClaimChecks,
        logins: FacadeLogins,
        audience: str,
    ) -> None:
        self._issuer = issuer.issuer
        self._tokens = SignedTokens(issuer, keys, (TYPE,))
        self._checks = checks
        self._logins = logins
        self._audience = audience

    async def person(self, assertion: str, client_id: str, now: float) -> VerifiedCaller:
        """Return the person whom an assertion names to a client, and use it.

        Raises:
            TokenInvalid: the assertion is not accepted, or was used.
            VerifierUnavailable: the keys of the issuer cannot be fetched.
        """
        token = parse_jwt(assertion) if len(assertion) <= _CHARACTERS else None
        if token is None:
            raise TokenInvalid("it is no JWT")
        claims = await self._tokens.claims(token)
        person = self._checks.asserted(
            claims, self._issuer, audience=self._audience, client_id=client_id, now=now
        )
        # `exp` may have a fraction.
        expires_at = (person.expires_at or 0) + 1 + LEEWAY_SECONDS
        if expires_at > now + LONGEST_SECONDS + 1 + LEEWAY_SECONDS:
            raise TokenInvalid("it lives too long")
        if not await self._logins.use_assertion(self._issuer, claims["jti"], expires_at):
            raise TokenInvalid("it was used before")
        return person


class FoundCode(AuthorizationCode):
    """A code with its login."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stored: StoredLogin


class FoundRefreshToken(RefreshToken):
    """A refresh token with its login."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stored: StoredLogin


class FacadeProvider(OAuthAuthorizationServerProvider[FoundCode, FoundRefreshToken, AccessToken]):
    """Finds clients and logins for the handlers. `clock` returns the seconds since 1970.

    `note` records the outcome of an identity assertion and the person.
    """

    def __init__(
        self,
        settings: AuthSettings,
        public_url: str,
        secret: str,
        documents: ClientDocuments,
        logins: FacadeLogins,
        assertions: IdentityAssertions,
        note: Callable[[str, Principal | None, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._public_url = public_url
        self._resources = [*settings.audience, f"{public_url}/mcp", public_url]
        self._documents = documents
        self._logins = logins
        self._assertions = assertions
        self._note = note
        self._clock = clock
        self._requests = Seal(secret, "requests")
        self._has_registration = settings.facade.registration
        self._configured = {
            client.client_id: FacadeClient(
                client_id=client.client_id,
                client_secret=client.client_secret.get_secret_value(),
                token_endpoint_auth_method="client_secret_post",
                grant_types=[JWT_BEARER_GRANT_TYPE],
            )
            for client in settings.facade.clients
        }
        self._refusals = RefusalLog()

    def now(self) -> float:
        return self._clock()

    def has_resource(self, uri: str) -> bool:
        """Whether a URL names a resource for which this server gives tokens."""
        return normal_resource(uri) in map(normal_resource, self._resources)

    async def get_client(self, client_id: str) -> FacadeClient | None:
        if client_id in self._configured:
            return self._configured[client_id]
        if client_id.startswith(PREFIX):
            return registered_client(client_id) if self._has_registration else None
        if "://" not in client_id:
            return None
        try:
            return await self._documents.client(client_id)
        except DocumentInvalid as error:
            self._refusals.add("client metadata document", client_id[:200], f"refused: {error}")
            return None

    async def token_client(self, client_id: str) -> FacadeClient | None:
        """Return the client of a request for tokens. Its login binds the client, so that no document is needed."""
        if client_id in self._configured or "://" not in client_id:
            return await self.get_client(client_id)
        return FacadeClient(
            client_id=client_id,
            token_endpoint_auth_method="none",
            grant_types=["authorization_code", "refresh_token"],
        )

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        client_info.client_id = registered_id(client_info)

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        if "authorization_code" not in client.grant_types:
            raise AuthorizeError("unauthorized_client", "The client has no authorization_code")
        if not _CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", "code_challenge should be one of S256")
        request = LoginRequest(
            client_id=client.client_id,
            redirect_uri=str(params.redirect_uri),
            state=params.state,
            scopes=params.scopes or [USE],
            challenge=params.code_challenge,
            resource=self._resource(params.resource),
        )
        sealed = self._requests.seal(request.model_dump(), self._clock())
        if len(sealed) > REQUEST_CHARACTERS:
            raise AuthorizeError("invalid_request", "The request is too long")
        return f"{self._public_url}/consent?{urlencode({'request': sealed})}"

    def open_request(self, sealed: str) -> LoginRequest | None:
        """Return a request of authorize() that is not too old, else None."""
        document = self._requests.open(sealed, self._clock(), seconds=REQUEST_SECONDS)
        return None if document is None else LoginRequest.model_validate(document)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> FoundCode | None:
        stored = await self._logins.find(authorization_code, self._clock())
        request = None if stored is None else stored.login.request
        if stored is None or request is None:
            return None
        return FoundCode(
            code="",
            scopes=stored.login.scopes,
            expires_at=stored.expires_at,
            client_id=stored.login.client_id,
            code_challenge=request.challenge,
            redirect_uri=AnyUrl(request.redirect_uri),
            redirect_uri_provided_explicitly=True,
            resource=stored.login.resource,
            subject=stored.login.subject,
            stored=stored,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: FoundCode
    ) -> OAuthToken:
        return await self._exchange(client, authorization_code.stored, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> FoundRefreshToken | None:
        stored = await self._logins.find(refresh_token, self._clock())
        if stored is None or stored.login.request is not None or not stored.login.is_refreshable:
            return None
        return FoundRefreshToken(
            token="",
            client_id=stored.login.client_id,
            scopes=stored.login.scopes,
            expires_at=int(stored.expires_at),
            resource=stored.login.resource,
            subject=stored.login.subject,
            stored=stored,
        )

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,
        refresh_token: FoundRefreshToken,
        scopes: list[str],
    ) -> OAuthToken:
        return await self._exchange(client, refresh_token.stored, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        try:
            return (await self._logins.caller(token, self._clock())).access_token
        except (TokenInvalid, VerifierUnavailable):
            return None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        # RevocationHandlers revoke by the text of the token, which neither of the two has.
        raise NotImplementedError

    async def exchange_identity_assertion(
        self, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        now = self._clock()
        try:
            person = await self._assertions.person(params.assertion, client.client_id, now)
        except TokenInvalid as error:
            self._refusals.add("identity assertion", client.client_id, f"refused: {error}")
            self._note("login_failed", None, "")
            raise TokenError("invalid_grant", "The assertion is not accepted") from None
        except VerifierUnavailable as error:
            self._refusals.add("identity assertion", client.client_id, f"not checked: {error}")
            raise TokenError("invalid_request", "The issuer does not answer") from None
        wanted = params.resource or person.resource or ""
        if normal_resource(wanted) != normal_resource(person.resource or ""):
            raise TokenError("invalid_target", "The assertion is for another resource")
        scopes = [s for s in person.scopes if params.scopes is None or s in params.scopes]
        if not scopes:
            raise TokenError("invalid_scope", "The assertion has none of the scopes")
        tokens = await self._logins.open_asserted(person, scopes, now)
        self._note("ok", person.principal, "")
        return tokens

    async def _exchange(
        self, client: OAuthClientInformationFull, stored: StoredLogin, scopes: Sequence[str]
    ) -> OAuthToken:
        tokens = await self._logins.exchange(stored, scopes, self._clock())
        if tokens is None:
            raise TokenError("invalid_grant", "It was exchanged before")
        return tokens

    def _resource(self, wanted: str | None) -> str:
        """Return the resource of a request.

        Raises:
            AuthorizeError: it is none of this server.
        """
        if wanted is None:
            return self._resources[0]
        if self.has_resource(wanted):
            return wanted
        raise AuthorizeError("invalid_target", NO_RESOURCE)


class TokenClients:
    """The clients of requests for tokens, for the authenticator of the SDK."""

    def __init__(self, provider: FacadeProvider) -> None:
        self._provider = provider

    async def get_client(self, client_id: str) -> FacadeClient | None:
        return await self._provider.token_client(client_id)
