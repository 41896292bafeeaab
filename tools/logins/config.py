"""The logins of the configuration, by name: `[logins.NAME]`, of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

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


LoginConfig: TypeAlias = KeyConfig
"""A login of the configuration. The kinds are told apart by `kind`."""
