"""The logins of the configuration, by name: `[logins.NAME]`, of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ...sessions.records import LOCAL
from ..browser.devtools.world import is_origin, origin_of

NAME: Final = r"[A-Za-z0-9_.@/-]{1,128}"
"""The form of the name of a login that the configuration or a person gives."""
REFERENCE: Final = re.compile(rf"\$\{{login:({NAME})\}}")
"""The place of a key in the settings of a service."""


def names_in(texts: Iterable[str]) -> list[str]:
    """Return the names of the keys that some texts refer to, each once."""
    return list(dict.fromkeys(name for text in texts for name in REFERENCE.findall(text)))


class KeyConfig(BaseModel):
    """A key that a file holds or a command prints, for the services whose settings hold `${login:NAME}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["key"] = Field(description="Kind of the login.")
    file: Path | None = Field(default=None, description="File that holds the key and nothing else.")
    command: list[str] = Field(
        default_factory=list[str],
        description='Command, without a shell, that prints it, such as `["op", "read", "op://..."]`, in at most 20 s.',
    )

    @model_validator(mode="after")
    def _check(self) -> KeyConfig:
        if (self.file is None) == (not self.command):
            problem = "needs a `file` or a `command`; give one of the two"
            raise PydanticCustomError("statehold", "{message}", {"message": problem})
        return self


def _check_site(site: str) -> str:
    if not is_origin(site):
        problem = f"{site!r} is no origin; write one such as https://shop.test"
        raise PydanticCustomError("statehold", "{message}", {"message": problem})
    return site.removesuffix("/")


class LendRule(BaseModel):
    """Some principals, besides its owner, whose sessions may have a login of the operator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    principals: list[str] = Field(
        default_factory=list[str], description="Subjects; `local` is the user of this machine."
    )
    groups: list[str] = Field(
        default_factory=list[str], description="Groups whose members may have it."
    )
    scripts: bool = Field(
        default=False,
        description="Whether agents may run scripts on its sites, which can read the login.",
    )


class LoginCheck(BaseModel):
    """A page of a site that shows whether a login is still valid."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        description="Page of one of the sites. Whoever is signed in gets it without being led to another page."
    )
    text: str = Field(
        default="", description="Text that it shows to them only, such as `Sign out`."
    )
    every: float = Field(
        default=900.0,
        ge=10,
        le=86400,
        description="Seconds from a check to the next one. A login that a session has is checked when it is given back.",
    )


class BrowserLoginConfig(BaseModel):
    """A login of the built-in browser at some sites, which one session at a time has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["browser"] = Field(description="Kind of the login.")
    sites: list[Annotated[str, AfterValidator(_check_site)]] = Field(
        min_length=1,
        description="All origins that the login is for. Sessions without the login cannot reach them.",
    )
    lend: list[LendRule] = Field(
        default_factory=list[LendRule],
        description="Others that may have the login of the operator, and whether with scripts. Default: nobody else.",
    )
    idle: float = Field(
        default=60.0,
        gt=0,
        le=86400,
        description="Seconds without a call after which a session gives it back. Its next call takes it again.",
    )
    check: LoginCheck | None = Field(
        default=None, description="How the server finds out that its site ended it. Default: not."
    )
    renew: list[str] = Field(
        default_factory=list[str],
        description="Command, without a shell, that logs in and prints a storage state of the sites in at most 120 s. "
        "It renews the login of the operator only; other principals log in again in person.",
    )

    @model_validator(mode="after")
    def _check(self) -> BrowserLoginConfig:
        problem = ""
        if self.check is not None and origin_of(self.check.url) not in self.sites:
            problem = "`check.url` is no page of its `sites`"
        elif self.renew and self.check is None:
            problem = "`renew` needs a `check`, which tells when to run it"
        if problem:
            raise PydanticCustomError("statehold", "{message}", {"message": problem})
        return self

    def renew_for(self, owner: str) -> list[str]:
        """Return the command that renews the login of an owner. It logs in as the operator, so others have none."""
        return self.renew if owner == LOCAL.key else []


LoginConfig: TypeAlias = Annotated[KeyConfig | BrowserLoginConfig, Field(discriminator="kind")]
"""A login of the configuration. The kinds are told apart by `kind`."""
