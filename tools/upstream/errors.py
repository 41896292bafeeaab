"""The errors of an upstream, as subclasses of the session errors.

RequestRefused
 └── UpstreamRefused            it answered the request with a JSON-RPC error
ServiceUnavailable
 └── UpstreamMisbehaved         it answered with something that is not MCP
"""

from __future__ import annotations

from ...sessions.errors import RequestRefused, ServiceUnavailable


class UpstreamRefused(RequestRefused):
    """Raised when an upstream answered a request with a JSON-RPC error."""


class UpstreamMisbehaved(ServiceUnavailable):
    """Raised when an upstream violated the protocol in its answer; the call did run."""

    retryable = False
    recovery = "The server behind this tool is at fault: look at the effect of the call before you repeat it."

    def __init__(self, service: str, fault: str) -> None:
        super().__init__(f"The server of {service} broke the protocol: {fault}.")


__all__ = ["UpstreamMisbehaved", "UpstreamRefused"]
