"""The routes of the API: each stands at its handler. The application and its OpenAPI document are made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, get_type_hints

from starlette.responses import Response

from ..access.config.auth import Role
from ..sessions.records import ShareRights
from .logins import Rights
from .requests import ApiModel

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
        return handler

    return mark


def routes_of(kind: type) -> Iterator[tuple[ApiRoute, str]]:
    """Yield the routes of the handlers of a class, with the name of the method of each."""
    for name, function in vars(kind).items():
        for each in getattr(function, "routes", ()):
            yield each, name
