"""One request to the API that has passed the checks, as its handler gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from .errors import login_required
from .logins import ConsoleUser, Login
from .routes import ApiRoute

ANYONE: Final = ConsoleUser("nobody", rights="view", session_id="")
"""The user of a request without a login: no session exists for it."""


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
