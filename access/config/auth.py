"""The settings of `[auth]`: issuers, tokens, the authorization server, and the logins with accounts at the console."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from .types import Names, Section, is_protected_url, split

Role = Literal["user", "operator", "admin"]
_Rsa = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
Algorithm = Literal[_Rsa, "ES256", "ES384", "ES512", "EdDSA"]
_DEFAULT_ALGORITHMS: Final[tuple[Algorithm, ...]] = ("RS256", "PS256", "ES256", "EdDSA")


class ConsoleLoginSettings(Section):
    """Statehold as a client of one of `auth.issuers`, which has people log in at its own page."""

    issuer: str = Field(
        default="",
        description="One of `auth.issuers`. Default: the only one.",
    )
    client_id: str = Field(
        default="",
        max_length=2048,
        description="The id under which Statehold is registered there, with the redirect URI "
        "`PUBLIC_URL/console/callback`.",
    )
    client_secret: SecretStr | None = Field(
        default=None,
        description="The secret of `client_id`. Write it as `${NAME}` of an environment variable, or as `${file:PATH}`. "
        "None: a public client.",
    )
    scopes: Names = Field(
        default_factory=lambda: ["openid"],
        description="The scopes that it asks for; some providers need `groups`.",
    )
    name: str = Field(
        default="",
        max_length=40,
        description="The name of the provider on the button. Default: the host of the issuer.",
    )

    @property
    def enabled(self) -> bool:
        """Whether people can log in with accounts."""
        return bool(self.client_id)

    @model_validator(mode="after")
    def _check_scopes(self) -> Self:
        if "openid" not in self.scopes:
            raise PydanticCustomError("scopes", "scopes should have openid")
        return self


class FacadeClientSettings(Section):
    """A client with a secret, as a table `[[auth.facade.clients]]`. It exchanges identity assertions."""

    client_id: str = Field(
        min_length=1,
        max_length=255,
        description="Its id, as its identity assertions have it, too.",
    )
    client_secret: SecretStr = Field(
        min_length=16,
        description="Its secret. Write it as `${NAME}` of an environment variable, or as `${file:PATH}`.",
    )


class FacadeSettings(Section):
    """Statehold as an authorization server that has people log in at an OpenID provider."""

    issuer: str = Field(
        default="",
        max_length=2048,
        description="The issuer identifier of the OpenID provider at which people log in; `server.public_url` and "
        "`audience` have to be set.",
    )
    client_id: str = Field(
        default="",
        description="The id under which Statehold is registered there, with the redirect URI `PUBLIC_URL/callback`.",
    )
    client_secret: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="The secret of `client_id`. Write it as `${NAME}` of an environment variable, or as `${file:PATH}`.",
    )
    scopes: Names = Field(
        default_factory=lambda: ["openid"],
        description="The scopes that it asks for; some providers need `groups`.",
    )
    registration: bool = Field(
        default=False, description="Whether unknown clients may register themselves (RFC 7591)."
    )
    access_token_seconds: int = Field(
        default=600, ge=60, le=3600, description="Lifetime of an access token, in seconds."
    )
    login_seconds: int = Field(
        default=86_400,
        ge=600,
        le=365 * 86_400,
        description="Seconds after which a person has to log in again, however often the client refreshes its token.",
    )
    clients: list[FacadeClientSettings] = Field(
        default_factory=list[FacadeClientSettings],
        description="The clients that may exchange identity assertions of `issuer` (ID-JAG).",
    )

    @property
    def enabled(self) -> bool:
        """Whether Statehold issues tokens."""
        return bool(self.issuer)

    @property
    def secrets(self) -> list[SecretStr | None]:
        """The secrets of Statehold and of its clients."""
        return [self.client_secret, *(client.client_secret for client in self.clients)]

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, url: str) -> str:
        if url and not is_protected_url(url):
            raise PydanticCustomError(
                "url", "Input should be an https URL without a query, or one of http on loopback"
            )
        return url

    @model_validator(mode="after")
    def _check_provider(self) -> Self:
        if not self.enabled:
            if self.client_id or self.registration or self.clients:
                raise PydanticCustomError("facade", "issuer is missing")
            return self
        if not self.client_id or self.client_secret is None or "openid" not in self.scopes:
            raise PydanticCustomError(
                "facade", "issuer needs client_id, client_secret and the scope openid"
            )
        return self


def _check_url(url: str) -> str:
    if url and not is_protected_url(url):
        raise PydanticCustomError(
            "url", "Input should be an https URL without a query, or one of http on loopback"
        )
    return url


class IssuerSettings(Section):
    """An issuer of access tokens, as a table `[[auth.issuers]]`."""

    issuer: str = Field(
        min_length=1,
        max_length=2048,
        description="Its issuer identifier, exactly as the `iss` of its tokens.",
    )
    jwks_uri: str = Field(
        default="",
        description="URL of its keys. Default: the one in its metadata (OpenID Connect discovery or RFC 8414).",
    )
    introspection_endpoint: str = Field(
        default="",
        description="URL that answers whether a token is active (RFC 7662), instead of keys. Needs `client_id` and "
        "`client_secret`.",
    )
    client_id: str = Field(
        default="", description="The id under which Statehold is known at `introspection_endpoint`."
    )
    client_secret: SecretStr | None = Field(
        default=None,
        description="The secret of `client_id`. Write it as `${NAME}` of an environment variable, or as `${file:PATH}`.",
    )
    algorithms: Annotated[list[Algorithm], BeforeValidator(split)] = Field(
        default_factory=lambda: list(_DEFAULT_ALGORITHMS),
        min_length=1,
        description="The accepted signature algorithms.",
    )
    typ: Literal["at+jwt", "JWT"] = Field(
        default="at+jwt",
        description='The accepted `typ` of a token. `JWT`: also tokens with `typ: "JWT"` or without one, for issuers that '
        "do not follow RFC 9068.",
    )

    @field_validator("issuer", "jwks_uri", "introspection_endpoint")
    @classmethod
    def _check_urls(cls, url: str) -> str:
        return _check_url(url)

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        if self.introspection_endpoint and not (self.client_id and self.client_secret):
            raise PydanticCustomError(
                "client", "introspection_endpoint needs client_id and client_secret"
            )
        return self


class AuthSettings(Section):
    """Callers with access tokens of an identity provider. Statehold is an OAuth resource server then."""

    issuers: list[IssuerSettings] = Field(
        default_factory=list[IssuerSettings],
        description="The issuers of accepted tokens; `server.public_url` and `audience` have to be set.",
    )
    audience: Names = Field(
        default_factory=list[str],
        description="The accepted values of `aud`, such as `https://mcp.example.org/mcp`. A token for another audience is "
        "refused.",
    )
    subject_claim: str = Field(
        default="sub",
        min_length=1,
        description="The claim that names the caller. With the issuer, it owns the sessions of the caller.",
    )
    groups_claim: str = Field(
        default="groups", min_length=1, description="The claim with the groups of the caller."
    )
    roles: dict[str, Role] = Field(
        default_factory=dict[str, Role],
        description='The role of the members of each group: `"user"`, `"operator"` or `"admin"`.',
    )
    console: ConsoleLoginSettings = Field(
        default_factory=ConsoleLoginSettings,
        description="The login at the console with an account of an issuer.",
    )
    facade: FacadeSettings = Field(
        default_factory=FacadeSettings,
        description="The [authorization server](../operate/login.md) for clients without a client id.",
    )

    @property
    def enabled(self) -> bool:
        """Whether callers can have tokens of an issuer."""
        return bool(self.issuers) or self.facade.enabled

    @property
    def facade_issuer(self) -> IssuerSettings | None:
        """The issuer at which people log in for `facade`, which may be one of `issuers`, too."""
        if not self.facade.enabled:
            return None
        name = self.facade.issuer
        known = [issuer for issuer in self.issuers if issuer.issuer == name]
        return known[0] if known else IssuerSettings(issuer=name)

    @model_validator(mode="after")
    def _check_issuers(self) -> Self:
        names = [issuer.issuer for issuer in self.issuers]
        if len(set(names)) < len(names):
            raise PydanticCustomError("issuers", "each issuer should be there once")
        if self.console.enabled and self.console_issuer is None:
            raise PydanticCustomError("console", "console.issuer should be one of auth.issuers")
        return self

    @property
    def console_issuer(self) -> IssuerSettings | None:
        """The issuer at which people log in for the console; None without one."""
        wanted = self.console.issuer
        found = [each for each in self.issuers if each.issuer == wanted or not wanted]
        return found[0] if self.console.enabled and len(found) == 1 else None


DEFAULT_ROLE: Final[Role] = "user"
ROLES: Final[tuple[Role, ...]] = ("user", "operator", "admin")
"""All roles, each of which includes those before it."""
