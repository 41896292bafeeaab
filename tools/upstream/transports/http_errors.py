"""HTTP responses of an upstream that are no answer in MCP, and the error that a caller gets for one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from ....sessions.attribution import LAST_WORDS
from ....sessions.errors import ServiceUnavailable

WORDS_LENGTH: Final = 300
_CONTENT_TYPE: Final = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,80}", re.ASCII)

_LOCAL_HOST: Final = re.compile(r"(?!localhost\b)([\w-]+|[\d.]+|\[[\da-f:]+\])(:\d+)?", re.ASCII)
"""Matches an address, or a name of a machine or container, by which a server may not know itself."""

CREDENTIALS_REFUSED: Final = (401, 403, 407)
OTHER_ADDRESS: Final = (400, 404, 405)
"""Statuses of a URL that may speak another transport, as the protocol names them."""
TOO_MUCH: Final = (408, 413, 429)
"""Statuses that concern one request or the load; they say nothing about a session."""

REFUSED: Final = "The server refused the message"
TOO_LONG: Final = "the answer has more than"
"""The beginning of the error about an answer that is too long."""
STAND_INS: Final = (
    REFUSED,
    "Server returned an error response",
    "Session terminated",
    "Not Found",
)
"""The messages that the SDK (2.3) and our own transports put in place of an answer."""


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """An HTTP response to a request that is no answer in MCP: an error, a redirect that is not followed, or a page."""

    status: int
    content_type: str = ""
    location: str = ""
    """The address of a redirect, without its query."""
    retry_after: float | None = None
    """Seconds after which the server wants the next try."""
    host: str = ""
    """The host and port of the request."""

    def redacted(self, redact: Callable[[str], str]) -> HttpRefusal:
        return replace(self, location=redact(self.location))

    @property
    def may_have_run(self) -> bool:
        """Whether the request may have had an effect."""
        return self.status >= 500 or self.status < 300

    @property
    def suggests_other_transport(self) -> bool:
        """Whether the address may speak another transport than the one that was tried."""
        return self.status in OTHER_ADDRESS or (self.status < 300 and self.status != 202)

    @property
    def concerns_server(self) -> bool:
        """Whether a JSON-RPC error in its body does not come from the tool, but from the server or from one before it."""
        return self.status >= 500 or self.status in (*CREDENTIALS_REFUSED, *TOO_MUCH)


class NoConnection(Exception):
    """Raised when an address answers with something else than a connection."""

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class HttpRefused(ServiceUnavailable):
    """Raised when an upstream answered a request with an HTTP response that is no answer in MCP.

    `words` is an error message in the response. `opening`: no call was sent yet.
    """

    def __init__(
        self, service: str, refusal: HttpRefusal, words: str = "", *, opening: bool = False
    ) -> None:
        quoted = f"{LAST_WORDS}{words[:WORDS_LENGTH].rstrip('.')}" if words else ""
        remedy = _remedy(service, refusal)
        super().__init__(
            f"{service} {_fault(refusal)}{'; ' if remedy else ''}{remedy}{quoted}.",
            recovery=None if opening else _recovery(refusal),
            retry_after=refusal.retry_after,
        )
        self.refusal = refusal
        self.words = words
        self.did_not_run = not refusal.may_have_run
        self.retryable = opening or refusal.status == 429


def _fault(refusal: HttpRefusal) -> str:
    status = refusal.status
    if refusal.location:
        return f"redirects to {refusal.location} (HTTP {status}), which is not followed"
    if status == 202:
        return "accepted the request without an answer (HTTP 202)"
    if status < 300:
        kind = refusal.content_type if _CONTENT_TYPE.fullmatch(refusal.content_type) else "no type"
        return f"answered with {kind} instead of MCP (HTTP {status})"
    try:
        phrase = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        phrase = ""
    return f"answered HTTP {status}{phrase}"


def _remedy(service: str, refusal: HttpRefusal) -> str:
    status = refusal.status
    if refusal.location:
        return f"if that is the intended server, set `url` of [services.{service}] to it"
    if status in CREDENTIALS_REFUSED:
        credentials = f"check the credentials in `headers` of [services.{service}]"
        if status == 403 and _LOCAL_HOST.fullmatch(refusal.host):
            return (
                f"if it checks `Host`, as @playwright/mcp does, start it with `--allowed-hosts {refusal.host}`; else "
                f"{credentials}"
            )
        return credentials
    if status == 413:
        return "the request is too large for it"
    if refusal.retry_after is not None:
        return f"it can be asked again after {refusal.retry_after:g} seconds"
    if status == 429:
        return "it wants fewer requests"
    if status in OTHER_ADDRESS or status < 300:
        return f"check `url` and `type` of [services.{service}]"
    return ""


def _recovery(refusal: HttpRefusal) -> str:
    if refusal.may_have_run:
        return "The call may or may not have run: look at its effect before you repeat it."
    if refusal.status == 413:
        return "The call did not run: send less."
    if refusal.status == 429:
        seconds = refusal.retry_after
        wait = "a while" if seconds is None else f"{seconds:g} seconds"
        return f"The call did not run: wait {wait}, then call again."
    return "The call did not run. Ask the operator of this server."


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a `Retry-After` header, a number or a date; None without a valid one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    due = _parse_date(value)
    if due is None:
        return None
    # By the clock of the server, if it says its time.
    now = _parse_date(headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, round((due - now).total_seconds()))


def _parse_date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


__all__ = [
    "REFUSED",
    "STAND_INS",
    "TOO_LONG",
    "TOO_MUCH",
    "HttpRefusal",
    "HttpRefused",
    "NoConnection",
    "retry_after",
]
