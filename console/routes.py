"""The routes of the API, each at its handler; a request that has passed the checks; and the errors of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, get_type_hints

from starlette.requests import Request
from starlette.responses import Response

from ..access.config.auth import Role
from ..server.cluster.node_messages import encode
from ..server.sockets.request import Refused
from ..sessions.errors import SessionError, StoreUnavailable
from ..sessions.json_codec import JSON
from ..sessions.records import ShareRights
from ..sessions.wording import CONSOLE, next_step
from .logins import ConsoleUser, Login, Rights
from .requests import ApiModel

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
    "login_unavailable": 503,
    "store_unavailable": 503,
    "connection_lost": 503,
    "outcome_unknown": 503,
    "call_timeout": 503,
}
"""The status of each code. All others say that the session does not allow it now, which is 409."""
CONFLICT: Final = 409

PREFIX: Final = "/api/v1"
SESSION: Final = "/sessions/{session_id}"
VIEW, USE = ShareRights.VIEW, ShareRights.USE
BODY_BYTES: Final = 1 << 20
"""The largest body of a request that carries no files."""

Method = Literal["GET", "POST", "DELETE"]
Audience = Literal["anyone", "guest", "member", "machine"]
"""The users that a route is for: anyone, those with a login, those whose login is no link, the user of the machine."""

Answer = Literal["json", "file", "events", "frames"]
Handler = Callable[..., Awaitable[Response]]
"""It gets an ApiCall, and `query` or `body` if it has a parameter of that name."""
H = TypeVar("H", bound=Handler)
ROUTES: Final[list[ApiRoute]] = []
"""All routes, as soon as the modules of their handlers are imported."""

ANYONE: Final = ConsoleUser("nobody", rights="view", session_id="")
"""The user of a request without a login: no session exists for it."""


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


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A route. `name` is that of its handler; `rights` and `role` are those that its user needs.

    It answers for sessions of its user alone, unless `shared` has the right of a share that allows it for those of others. A
    route for operators answers for sessions of all owners, and has no content of them.
    """

    method: Method
    path: str
    summary: str
    audience: Audience = "member"
    rights: Rights = "view"
    role: Role = "user"
    shared: ShareRights | None = None
    body_bytes: int = BODY_BYTES
    answer: Answer = "json"
    name: str = ""
    query: type[ApiModel] | None = None
    body: type[ApiModel] | None = None

    @property
    def full_path(self) -> str:
        return f"{PREFIX}{self.path}"


def route(method: Method, path: str, summary: str, **settings: Any) -> Callable[[H], H]:
    """Give a handler its route, with settings of ApiRoute. The handler has its name and its query or body as parameters."""
    return serve([ApiRoute(method, path, summary, **settings)])


def serve(routes: Iterable[ApiRoute]) -> Callable[[H], H]:
    """Give a handler several routes. One without a name has that of the handler."""

    def mark(handler: H) -> H:
        models = get_type_hints(handler)
        handler.__dict__["routes"] = [
            replace(
                each,
                name=each.name or handler.__name__,
                query=models.get("query"),
                body=each.body or models.get("body"),
            )
            for each in routes
        ]
        ROUTES.extend(handler.__dict__["routes"])
        return handler

    return mark


def routes_of(kind: type) -> Iterator[tuple[ApiRoute, str]]:
    """Yield the routes of the handlers of a class, with the name of the method of each."""
    for name, function in vars(kind).items():
        for each in getattr(function, "routes", ()):
            yield each, name


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request with its route and its user."""

    route: ApiRoute
    request: Request
    user: ConsoleUser
    login: Login | None

    @property
    def session_id(self) -> str:
        return self.parameter("session_id")

    @property
    def address(self) -> str:
        """The address of the client; empty for a socket of this machine."""
        client = self.request.client
        return client.host if client else ""

    def parameter(self, name: str) -> str:
        """Return a part of the path."""
        return self.request.path_params[name]

    def require_login(self) -> Login:
        """Return the login.

        Raises:
            ApiError: there is none.
        """
        if self.login is None:
            raise login_required()
        return self.login
