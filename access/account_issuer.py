"""A login at an issuer by OpenID Connect: an authorization code with PKCE, a state, a nonce, and one ID token."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import quote_plus, urlencode

import anyio
from pydantic import SecretStr
from starlette.datastructures import QueryParams

from ..sessions.json_codec import JSON
from .claims import ClaimChecks, VerifiedCaller
from .config.auth import IssuerSettings
from .config.types import is_protected_url
from .issuer_requests import StrangersForms, find_metadata
from .keys import SignedTokens, SigningKeys, parse_jwt
from .login_cookies import LoginAttempt
from .refusals import TokenInvalid, VerifierUnavailable, network_of

METADATA_SECONDS: Final = 600.0
"""Age at which the metadata of the issuer are read again."""
RETRY_SECONDS: Final = 2.0
"""Seconds between two attempts to read them, while there are none."""
CODE_CHARACTERS: Final = 8192


class IssuerClient(Protocol):
    """The settings of Statehold as a client of an issuer."""

    @property
    def client_id(self) -> str: ...

    @property
    def client_secret(self) -> SecretStr | None: ...

    @property
    def scopes(self) -> list[str]: ...


class AccountIssuer:
    """The issuer at which people log in. `clock` returns seconds that only rise.

    It keeps the metadata and the keys of the issuer, and nothing of a login.
    """

    def __init__(
        self,
        issuer: IssuerSettings,
        client: IssuerClient,
        checks: ClaimChecks,
        redirect_uri: str,
        *,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.issuer = issuer.issuer
        self._client_id = client.client_id
        secret = client.client_secret
        self._secret = None if secret is None else secret.get_secret_value()
        self._scope = " ".join(client.scopes)
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._checks = checks
        self.keys = SigningKeys(issuer, clock=clock)
        # An issuer whose access tokens are opaque or at+jwt signs its ID tokens as plain JWT.
        self._tokens = SignedTokens(issuer.model_copy(update={"typ": "JWT"}), self.keys)
        self._metadata: JSON = {}
        self._read_at: float | None = None
        self._problem = ""
        self._reading = anyio.Lock()
        self._forms = StrangersForms()

    async def authorization_url(self, attempt: LoginAttempt) -> str:
        """Return the URL of the issuer at which a person logs in.

        Raises:
            VerifierUnavailable: the issuer does not answer.
        """
        endpoint = str((await self._read_metadata())["authorization_endpoint"])
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    async def _code(self, answer: QueryParams, attempt: LoginAttempt) -> str:
        """Return the code in the answer of the issuer to a login."""
        if any(len(answer.getlist(name)) > 1 for name in answer):
            raise TokenInvalid("the answer has a parameter twice")
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise TokenInvalid("the answer is to another login")
        metadata = await self._read_metadata()
        must_be_named = metadata.get("authorization_response_iss_parameter_supported") is True
        if answer.get("iss", None if must_be_named else self.issuer) != self.issuer:
            raise TokenInvalid("the answer is of another issuer")
        if "error" in answer:
            raise TokenInvalid(f"the issuer says {answer['error'][:100]!r}")
        code = answer.get("code", "")
        if not 0 < len(code) <= CODE_CHARACTERS:
            raise TokenInvalid("the answer has no code")
        return code

    async def person(
        self, answer: QueryParams, attempt: LoginAttempt, now: float, address: str
    ) -> VerifiedCaller:
        """Return the person of an answer of the issuer, which came from an address. `now` is in seconds since 1970.

        Raises:
            IssuerRefused: the issuer does not accept the code in the answer.
            TokenInvalid: it is the answer to another login, of another issuer, or has no code; or the ID token is wrong.
            VerifierUnavailable: the issuer does not answer, or too many codes from there wait.
        """
        code = await self._code(answer, attempt)
        metadata = await self._read_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": attempt.verifier,
        }
        methods: object = metadata.get("token_endpoint_auth_methods_supported")
        client: tuple[str, str] | None = None
        if self._secret is None:
            form["client_id"] = self._client_id
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            form |= {"client_id": self._client_id, "client_secret": self._secret}
        else:
            client = quote_plus(self._client_id), quote_plus(self._secret)
        url = str(metadata["token_endpoint"])
        tokens = await self._forms.post(network_of(address), url, form, client)
        token = parse_jwt(str(tokens.get("id_token")))
        if token is None or str(token.header.get("typ", "JWT")).upper() != "JWT":
            raise TokenInvalid("the issuer returned no ID token")
        return self._checks.person(
            await self._tokens.claims(token),
            self.issuer,
            client_id=self._client_id,
            nonce=attempt.nonce,
            now=now,
        )

    async def _read_metadata(self) -> JSON:
        """Return the metadata of the issuer; the last ones while it does not answer.

        Raises:
            VerifierUnavailable: there are none.
        """
        async with self._reading:
            pause = METADATA_SECONDS if self._metadata else RETRY_SECONDS
            if self._read_at is None or self._clock() - self._read_at >= pause:
                try:
                    self._metadata = await self._fetch_metadata()
                except VerifierUnavailable as error:
                    self._problem = str(error)
                self._read_at = self._clock()
            if not self._metadata:
                raise VerifierUnavailable(self._problem)
            return self._metadata

    async def _fetch_metadata(self) -> JSON:
        metadata = await find_metadata(self.issuer, "authorization_endpoint", "token_endpoint")
        endpoint = str(metadata["authorization_endpoint"])
        if not is_protected_url(endpoint.partition("?")[0]) or "#" in endpoint:
            raise VerifierUnavailable("the authorization_endpoint is no https URL")
        return metadata
