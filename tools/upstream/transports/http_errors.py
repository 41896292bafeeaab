"""HTTP responses of an upstream that are no answer in MCP, and the error that a caller gets for one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, cast

import orjson

from ....sessions.attribution import LAST_WORDS
from ....sessions.errors import LoginUnavailable, PendingLogin, ServiceUnavailable

WORDS_LENGTH: Final = 300
BODY_LENGTH: Final = 2000
"""Characters of a body that are searched for the line to quote."""
CHALLENGE_LENGTH: Final = 2000
_CHALLENGE: Final = re.compile(r'\b(error|error_description|scope|resource_metadata)="([^"]*)"')
_MESSAGE_MEMBERS: Final = (
    *("error_description", "detail", "message", "msg", "error", "title", "reason"),
    *("description", "errors"),
)
"""The members of JSON that have the message of an error, in the APIs of the field."""
_CONTENT_TYPE: Final = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,80}", re.ASCII)

_LOCAL_HOST: Final = re.compile(r"(?!localhost\b)([\w-]+|[\d.]+|\[[\da-f:]+\])(:\d+)?", re.ASCII)
"""Matches an address, or a name of a machine or container, by which a server may not know itself."""

CREDENTIALS_REFUSED: Final = (401, 403, 407)
OTHER_ADDRESS: Final = (400, 404, 405)
"""Statuses of a URL that may speak another transport, as the protocol names them."""
_OTHER_TRANSPORT: Final = (403, 406, 409, 410, 411, 415, 422, 426, 500, 501)
TOO_MUCH: Final = (408, 413, 429)
"""Statuses that concern one request or the load; they say nothing about a session."""

REFUSED: Final = "The server refused the message"
TOO_LONG: Final = "the answer has more than"
"""The beginning of the error about an answer that is too long."""
NO_ANSWER: Final = "it answered with a message that is no answer to this request"
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
    loops: bool = False
    """Whether its redirects lead back to an address that they began at."""
    lacks_scope: bool = False
    """Whether the credentials were valid, but without the scope that is needed."""
    offers_login: bool = False
    """Whether its challenge names the authorization server of an OAuth login."""
    login: PendingLogin | None = None
    """The login that the user of this machine can do."""
    key_error: LoginUnavailable | None = None
    """The error of a request whose keys are missing or were refused."""
    words: str = ""
    """The words of its body or its challenge."""

    def redacted(self, redact: Callable[[str], str]) -> HttpRefusal:
        return replace(self, location=redact(self.location), words=redact(self.words))

    @property
    def may_have_run(self) -> bool:
        """Whether the request may have had an effect."""
        return self.status >= 500 or self.status < 300

    @property
    def suggests_other_transport(self) -> bool:
        """Whether the address may speak another transport than the one that was tried."""
        return self.status in OTHER_ADDRESS or (self.status < 300 and self.status != 202)

    @property
    def hides_transport(self) -> bool:
        """Whether a server of another transport may answer so, although the protocol names other statuses for that."""
        return self.status in _OTHER_TRANSPORT

    @property
    def concerns_server(self) -> bool:
        """Whether a JSON-RPC error in its body does not come from the tool, but from the server or from one before it."""
        return self.status >= 500 or self.status in (*CREDENTIALS_REFUSED, *TOO_MUCH)


@dataclass(frozen=True, slots=True)
class BrokenExchange:
    """A request without an answer on a transport that goes on: it could not be sent, or its response broke off."""

    cause: str
    unsent: bool = False
    """Whether it certainly did not arrive."""
    error: ServiceUnavailable | None = None
    """The error of a request that was not sent for want of a token."""


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
        remedy = _remedy(service, refusal, opening=opening)
        super().__init__(
            f"{service} {_fault(refusal)}{'; ' if remedy else ''}{remedy}{quoted}.",
            recovery=None if opening else _recovery(refusal),
            retry_after=refusal.retry_after,
        )
        self.login = refusal.login
        if refusal.login is not None or (refusal.status == 401 and refusal.offers_login):
            self.needs_login = service
        self.refusal = refusal
        self.words = words
        self.did_not_run = not refusal.may_have_run
        self.retryable = opening or refusal.status == 429


def _fault(refusal: HttpRefusal) -> str:
    status = refusal.status
    if refusal.loops:
        return f"redirects in a circle (HTTP {status}), back to {refusal.location}"
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


def _remedy(service: str, refusal: HttpRefusal, *, opening: bool) -> str:
    status = refusal.status
    if refusal.loops:
        return ""
    if refusal.location:
        return f"if that is the intended server, set `url` of [services.{service}] to it"
    if status in CREDENTIALS_REFUSED:
        credentials = f"check the credentials in `headers` of [services.{service}]"
        if refusal.login is not None:
            return (
                f"log in at {refusal.login.address} in a browser of this machine, then call again"
            )
        if refusal.status == 401 and refusal.offers_login:
            return f"log in with `statehold logins add {shlex.quote(service)}`, or {credentials}"
        if refusal.lacks_scope and refusal.offers_login:
            command = f"statehold logins add {shlex.quote(service)} --scope"
            return f"log in with `{command}` and the scopes that it needs, or {credentials}"
        if refusal.lacks_scope:
            return f"the credentials in `headers` of [services.{service}] lack a scope"
        if status == 403 and _LOCAL_HOST.fullmatch(refusal.host):
            return (
                f"if it checks `Host`, as @playwright/mcp does, start it with `--allowed-hosts {refusal.host}`; else "
                f"{credentials}"
            )
        return credentials
    if status == 413:
        return "the request is too large for it"
    if refusal.retry_after is not None:
        return f"it can be asked again after {_duration(refusal.retry_after)}"
    if status == 429:
        return "it wants fewer requests"
    if opening and (status in OTHER_ADDRESS or status < 300):
        return f"check `url` and `type` of [services.{service}]"
    return ""


def _duration(seconds: float) -> str:
    """Return a time in the largest unit that has at least two of it."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:g} seconds"


def _recovery(refusal: HttpRefusal) -> str:
    if refusal.may_have_run:
        return "The call may or may not have run: look at its effect before you repeat it."
    if refusal.status == 413:
        return "The call did not run: send less."
    if refusal.status == 429:
        seconds = refusal.retry_after
        wait = "a while" if seconds is None else _duration(seconds)
        return f"The call did not run: wait {wait}, then call again."
    if refusal.login is not None:
        address = refusal.login.address
        return f"The call did not run: ask your user to open {address}, then call again."
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


def challenge_in(headers: Mapping[str, str]) -> tuple[str, bool, bool]:
    """Return the words of a `WWW-Authenticate` header, if valid credentials lack a scope, and if it offers a login."""
    fields = dict(_CHALLENGE.findall(headers.get("www-authenticate", "")[:CHALLENGE_LENGTH]))
    error, scope = fields.get("error", ""), fields.get("scope", "")
    lacks_scope = error == "insufficient_scope"
    words = [
        fields.get("error_description") or error,
        f"scope {scope}" if lacks_scope and scope else "",
    ]
    return ", ".join(filter(None, words)), lacks_scope, "resource_metadata" in fields


def words_in(content_type: str, body: bytes) -> str:
    """Return the words in the body of an HTTP error: a text, or a member of JSON that has a message. A page has none."""
    if content_type in ("", "text/plain"):
        return body[:BODY_LENGTH].decode("utf-8", "replace").strip()
    if not content_type.endswith("json"):
        return ""
    try:
        return _message_in(orjson.loads(body), 3)[:BODY_LENGTH]
    except ValueError:
        return ""


def _message_in(value: object, depth: int) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and value and depth:
        return _message_in(cast("list[object]", value)[0], depth - 1)
    if not isinstance(value, dict) or not depth:
        return ""
    fields = cast("dict[str, object]", value)
    texts = (_message_in(fields.get(name), depth - 1) for name in _MESSAGE_MEMBERS)
    return next(filter(None, texts), "")


def _parse_date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
