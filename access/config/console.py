"""The settings of `[auth.console]`: people log in at the console with their accounts."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from .types import Names, Section


class ConsoleLoginSettings(Section):
    """Statehold as a client of one of `auth.issuers`, which has people log in at its own page."""

    issuer: str = Field(
        default="",
        description="One of `auth.issuers`. Default: the only one.",
    )
    client_id: str = Field(
        default="",
        max_length=2048,
        description="The id under which Statehold is registered there, with the redirect URI `PUBLIC_URL/console/callback`. "
        "With it, the login page of the console has a button for accounts.",
    )
    client_secret: SecretStr | None = Field(
        default=None,
        description="The secret of `client_id`. Write it as `${NAME}` of an environment variable, or as `${file:PATH}`. "
        "None: a public client.",
    )
    scopes: Names = Field(
        default_factory=lambda: ["openid"],
        description="The scopes that it asks for, such as `groups` where the provider needs one for the groups of a person.",
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
