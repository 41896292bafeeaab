"""What an upstream can fail with, as errors of a session.

InvalidArgument
 └── UpstreamRefused            it answered the request itself with a JSON-RPC error
ServiceUnavailable
 └── UpstreamMisbehaved         it answered with something that is not MCP
"""

from __future__ import annotations

from typing import Any

from ...sessions.errors import InvalidArgument, ServiceUnavailable


class UpstreamRefused(InvalidArgument):
    """Raised when an upstream answered a request with a JSON-RPC error, which may be passed on as it is."""

    recovery = "Read the message of the server, correct the call and try again."

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        """The JSON-RPC error code; `code` is ours."""
        self.data = data


class UpstreamMisbehaved(ServiceUnavailable):
    """Raised when an upstream answered, but not with what the protocol demands; the call did run."""

    retryable = False
    recovery = "The server behind this tool is at fault: look at the effect of the call before you repeat it."

    def __init__(self, service: str, fault: str) -> None:
        super().__init__(f"The server of {service} broke the protocol: {fault}.")


__all__ = ["UpstreamMisbehaved", "UpstreamRefused"]
