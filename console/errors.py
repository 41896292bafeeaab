"""The errors of the API, and their HTTP status: `{"code", "message", "recovery"}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from ..server.cluster.messages import encode
from ..server.sockets.request import Refused
from ..sessions.errors import SessionError, StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.wording import CONSOLE, next_step

_STATUSES: Final[Mapping[str, int]] = {
    "invalid_argument": 400,
    "state_invalid": 400,
    "login_required": 401,
    "login_failed": 401,
    "not_allowed": 403,
    "csrf": 403,
    "session_not_found": 404,
    "not_found": 404,
    "too_large": 413,
    "session_limit": 429,
    "internal": 500,
    "service_unavailable": 503,
    "store_unavailable": 503,
    "connection_lost": 503,
    "outcome_unknown": 503,
    "call_timeout": 503,
}
"""The status of each code. All others say that the session does not allow it now, which is 409."""
CONFLICT: Final = 409


class ApiError(Exception):
    """Raised when a request is refused before it reaches a session."""

    def __init__(self, code: str, message: str, recovery: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.recovery = recovery


def login_required() -> ApiError:
    return ApiError(
        "login_required", "This needs a login.", "Run `statehold console`, or log in with a token."
    )


def not_allowed(message: str) -> ApiError:
    return ApiError("not_allowed", message, "Ask the owner of the session.")


def not_found() -> ApiError:
    return ApiError("not_found", "There is no such resource.", "See /api/v1/openapi.json.")


def json_response(content: JSON, status: int = 200) -> Response:
    # Unlike JSONResponse, this writes every integer, and half a surrogate pair of a page.
    return Response(encode(content), status, media_type="application/json")


def error_response(error: ApiError | SessionError | Refused | StoreUnavailable) -> Response:
    """Return the response to a request that failed."""
    if isinstance(error, StoreUnavailable):
        error = ApiError("store_unavailable", str(error), "Try again later.")
    message = str(error) if isinstance(error, Refused) else error.message
    content = {
        "code": error.code,
        "message": message,
        "recovery": next_step(error.recovery, CONSOLE),
    }
    response = json_response(content, _STATUSES.get(error.code, CONFLICT))
    if isinstance(error, SessionError) and error.retry_after is not None:
        response.headers["retry-after"] = str(max(1, round(error.retry_after)))
    return response
