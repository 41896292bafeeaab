"""The exception for connections that the proxy does not open."""

from __future__ import annotations

from .socks import SocksReply


class EgressRefused(Exception):
    """Raised when the proxy opens no connection. The reason holds no secrets; `host` is None if no host is to blame."""

    def __init__(self, reply: SocksReply, reason: str, *, host: str | None = None) -> None:
        super().__init__(reason)
        self.reply = reply
        self.reason = reason
        self.host = host

    @property
    def by_policy(self) -> bool:
        return self.reply is SocksReply.NOT_ALLOWED


def not_allowed(host: object, reason: str) -> EgressRefused:
    """Return the refusal of a connection by the policy."""
    return EgressRefused(SocksReply.NOT_ALLOWED, reason, host=str(host))


def unreachable(host: object, reason: str) -> EgressRefused:
    """Return the refusal for a site that cannot be connected to."""
    return EgressRefused(SocksReply.HOST_UNREACHABLE, reason, host=str(host))


def too_many(reason: str) -> EgressRefused:
    """Return the refusal of a connection because of too many; a later one may succeed."""
    return EgressRefused(SocksReply.FAILED, reason)
