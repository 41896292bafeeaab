"""The settings of `[auth.facade]`: an authorization server for clients to which the provider gives no `client_id`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from .types import Names, Section, is_protected_url


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
        description="The issuer identifier of the OpenID provider at which people log in. With it, Statehold issues tokens "
        "of its own, and `server.public_url` and `audience` have to be set.",
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
        description="The scopes that it asks for, such as `groups` where the provider needs one for the groups of a person.",
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
        description="Seconds after which a person has to log in again, however often the client refreshes its token. A "
        "person whom the provider does not know any more keeps access for so long at most.",
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
