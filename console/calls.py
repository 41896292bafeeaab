"""One request to the API that has passed the checks, as its handler gets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..sessions.records import ShareRights
from .errors import login_required
from .logins import ConsoleUser, Login
from .requests import ApiModel

ANYONE: Final = ConsoleUser("nobody", rights="view", session_id="")
"""The user of a request without a login: no session exists for it."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request with its user, its query and its body."""

    request: Request
    user: ConsoleUser
    login: Login | None
    query: ApiModel
    body: ApiModel
    shared: ShareRights | None = None
    """The right of a share with which its user may ask for a session of another; None: it may not."""

    @property
    def session_id(self) -> str:
        return self.parameter("session_id")

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


Handler = Callable[[ApiCall], Awaitable[Response]]
