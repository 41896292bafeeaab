"""The types of settings: numbers within their bounds, names and lists of them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ...sessions.ids import is_name
from ...tools.browser.egress.addresses import is_loopback_host


def not_bool(value: object) -> object:
    if isinstance(value, bool):  # a bool is an int in Python, but never a time or a count
        raise PydanticCustomError("number", "Input should be a number, not true or false")
    return value


def split(value: object) -> object:
    """Split the text `a,b` of an environment variable or a flag into a list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _name(value: object) -> object:
    if isinstance(value, str) and not is_name(value):
        raise PydanticCustomError(
            "name",
            "Input should have 1 to 128 characters without slashes or control characters, and not be an id or a folder",
        )
    return value


Seconds = Annotated[float, BeforeValidator(not_bool), Field(ge=0, le=3.2e9, allow_inf_nan=False)]
SomeSeconds = Annotated[
    float, BeforeValidator(not_bool), Field(gt=0, le=86_400, allow_inf_nan=False)
]
Count = Annotated[int, BeforeValidator(not_bool), Field(ge=0, le=10_000_000)]
Bytes = Annotated[int, BeforeValidator(not_bool), Field(ge=0, le=1 << 40)]
Names = Annotated[list[str], BeforeValidator(split)]
Name = Annotated[str, BeforeValidator(_name)]
NameOrNone = Annotated[str, BeforeValidator(lambda value: value if value == "" else _name(value))]


class ConfigError(Exception):
    """Raised when a setting is wrong. Its text is one line: what is wrong, where, and what to do. No secret is in it."""


class Section(BaseModel):
    """A table of the configuration file: a value that knows no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def is_protected_url(url: str) -> bool:
    """Whether a URL is one of HTTPS, or of HTTP on loopback, without a user, a query and a fragment."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or any(character in url for character in "?#@\\ ") or not url.isprintable():
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))


def wrong(key: tuple[str, ...], message: str) -> PydanticCustomError:
    """Return an error that a validator raises about the setting `key`."""
    context: dict[str, Any] = {"message": message, "key": key}
    return PydanticCustomError("statehold", "{message}", context)
