"""The errors of an upstream, as subclasses of the session errors.

RequestRefused
 └── UpstreamRefused            it answered the request with a JSON-RPC error
ServiceUnavailable
 ├── UpstreamMisbehaved         it answered with something that is not MCP
 └── HttpRefused                it answered with an HTTP error; see transports/http_errors.py
"""

from __future__ import annotations

import re
from typing import Final

from mcp_types import INTERNAL_ERROR, PARSE_ERROR, ErrorData

from ...sessions.errors import LoginUnavailable, RequestRefused, ServiceUnavailable
from .known_secrets import Secrets
from .transports.http_errors import NO_ANSWER, STAND_INS, TOO_LONG, HttpRefusal, HttpRefused


class UpstreamRefused(RequestRefused):
    """Raised when an upstream answered a request with a JSON-RPC error. `refusal` is the HTTP error that carried it."""

    def __init__(
        self,
        rpc_code: int,
        message: str,
        data: object = None,
        refusal: HttpRefusal | None = None,
    ) -> None:
        super().__init__(rpc_code, message, data)
        self.refusal = refusal
        self.did_not_run = refusal is not None and not refusal.may_have_run

    @property
    def words(self) -> str:
        return self.message

    def with_message(self, message: str) -> UpstreamRefused:
        return UpstreamRefused(self.rpc_code, message, self.data, self.refusal)


class UpstreamMisbehaved(ServiceUnavailable):
    """Raised when an upstream violated the protocol in its answer; the call did run."""

    retryable = False
    recovery = "The server behind this tool is at fault: look at the effect of the call before you repeat it."

    refusal: HttpRefusal | None = None

    def __init__(self, service: str, fault: str) -> None:
        super().__init__(f"The server of {service} broke the protocol: {fault}.")
        self.words = fault


_ASKS_BY_MODERN_ERA: Final = re.compile(r"returned an (?:invalid|input-required) result")
"""The errors of the SDKs for a tool of the 2026-07-28 revision that asks on a connection of an older one."""


def with_era_remedy(service: str, error: UpstreamRefused) -> UpstreamRefused:
    """Return the error of a request on a connection of the older era, with the remedy if that era may be its cause."""
    if error.rpc_code == INTERNAL_ERROR and _ASKS_BY_MODERN_ERA.search(error.message):
        message = f"{error.message.rstrip('.')}. If it asks for input by the 2026-07-28 revision, {era_remedy(service)}."
        return error.with_message(message)
    return error


_ASKS_BY_OLDER_ERA: Final = re.compile(
    r"no back-channel for server-initiated requests"
    r"|server-initiated requests is unavailable on 2026-07-28"
    r"|Server-to-client requests are not available on protocol revision"
)
"""The errors of the SDKs and of FastMCP for a tool of an older revision that asks on a connection of 2026-07-28."""


def asks_by_older_era(message: str) -> bool:
    return _ASKS_BY_OLDER_ERA.search(message) is not None


def older_era_note(service: str, *, chosen: bool) -> str:
    """Return the note in the error of such a tool. `chosen`: new connections speak the older era now."""
    note = "Note from Statehold: this tool asks by the older protocol"
    if not chosen:
        return f'{note}: set era = "legacy" in [services.{service}].'
    return f"{note}, which the next connection speaks: call session_restart, then this tool again."


def era_remedy(service: str) -> str:
    return f'set era = "modern" in [services.{service}]'


_UNREADABLE: Final = re.compile(r"Failed to parse (?:JSON response|SSE message): (.*)")
"""The errors that the SDK (2.3) puts in place of an answer that is no JSON-RPC message. The rest may quote the answer."""


def refusal_of(
    service: str, error: ErrorData, http_refusal: HttpRefusal | None, secrets: Secrets
) -> UpstreamRefused | HttpRefused | UpstreamMisbehaved | LoginUnavailable:
    """Return the error of a request that was answered with `error`, or with something that is no answer in MCP."""
    unreadable = _UNREADABLE.match(error.message) if error.code == PARSE_ERROR else None
    if unreadable is not None:
        cause = unreadable[1]
        fault = cause if cause.startswith(TOO_LONG) else "its answer is no JSON-RPC message"
        return UpstreamMisbehaved(service, fault)
    if error.code == PARSE_ERROR and error.message == NO_ANSWER:
        return UpstreamMisbehaved(service, NO_ANSWER)
    if http_refusal is None:
        return UpstreamRefused(error.code, error.message, error.data)
    if http_refusal.key_error is not None:
        return http_refusal.key_error
    http_refusal = http_refusal.redacted(secrets.redact)
    if http_refusal.status < 400 or error.message in STAND_INS:
        # The SDK, or our transport, wrote the message.
        return HttpRefused(service, http_refusal, secrets.describe_failure(http_refusal.words))
    if http_refusal.concerns_server:
        return HttpRefused(service, http_refusal, secrets.describe_failure(error.message))
    return UpstreamRefused(error.code, error.message, error.data, http_refusal)
