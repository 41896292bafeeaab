"""The exception for requests that are not carried out, with the page that reports it."""

from __future__ import annotations

from html import escape
from http import HTTPStatus
from typing import Final

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 4rem auto; max-width: 40rem; padding: 0 1rem }}</style></head>
<body><h1>{title}</h1><p>{said}</p></body></html>
"""


class Refused(Exception):
    """Raised when the proxy itself answers a request instead of its site. The reason holds no secrets."""

    def __init__(
        self,
        status: HTTPStatus,
        reason: str,
        *,
        host: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.host = host

    @property
    def by_policy(self) -> bool:
        return self.status is HTTPStatus.FORBIDDEN

    def page(self) -> bytes:
        """Return the answer as HTML."""
        title = f"{self.status.value} {self.status.phrase}"
        if self.by_policy:
            title = "Refused by Statehold's network policy"
        return _PAGE.format(title=escape(title), said=escape(self.reason)).encode()


def not_allowed(host: object, reason: str) -> Refused:
    """Return the refusal of a request by the policy."""
    return Refused(HTTPStatus.FORBIDDEN, reason, host=str(host))


def malformed(reason: str) -> Refused:
    """Return the refusal of a malformed request."""
    return Refused(HTTPStatus.BAD_REQUEST, reason)


def unreachable(host: object, reason: str) -> Refused:
    """Return the refusal for a site that gives no answer, or none that can be passed on."""
    return Refused(HTTPStatus.BAD_GATEWAY, reason, host=str(host))


def too_late(host: object, reason: str) -> Refused:
    """Return the refusal for a site that did not answer in time."""
    return Refused(HTTPStatus.GATEWAY_TIMEOUT, reason, host=str(host))


def too_many(reason: str) -> Refused:
    """Return the refusal of a request because of too many connections; a later request may succeed."""
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason)


__all__ = [
    "Refused",
    "malformed",
    "not_allowed",
    "too_late",
    "too_many",
    "unreachable",
]
