"""The token of a principal with each request to a service that asks for OAuth, and the login that a refusal asks for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import httpx2

from ....sessions.errors import ServiceUnavailable, StoreUnavailable
from ...logins.masks import MASKS
from .logins import KEPT_SECONDS, Bearer, ServiceLogins, unavailable

if TYPE_CHECKING:
    from ..config import UpstreamConfig
    from .login_pages import Visit

CHALLENGE: Final = "resource_metadata="
"""The part of a `WWW-Authenticate` header that offers a login by OAuth (RFC 9728)."""
LACKS_SCOPE: Final = "insufficient_scope"
INVALID: Final = "invalid_token"
LOGIN: Final = "statehold_login"
"""The extension of a request that was refused for want of a login: the login that its user can do."""


class TokenUnavailable(httpx2.TransportError):
    """Raised in place of a request whose token cannot be had now: without it, a service would take it for another's."""

    def __init__(self, error: ServiceUnavailable, request: httpx2.Request) -> None:
        """`error` is that of the caller."""
        super().__init__(error.message, request=request)
        self.error = error


class AwaitedLogin:
    """A login that the user of this machine can do, at an address or by the command, in place of a refused one."""

    def __init__(self, logins: ServiceLogins, visit: Visit, refused: float | None) -> None:
        """`refused` is when the present login was made, which is refused, None without one. Its renewals do not count."""
        self.address = visit.address
        self._logins = logins
        self._visit = visit
        self._refused = refused

    async def wait(self) -> bool:
        """Wait until the user is logged in. Return False if they take too long."""
        from .login_pages import LOGIN_SECONDS

        visit = self._visit
        with anyio.move_on_after(LOGIN_SECONDS):
            while not visit.ended.is_set():
                with anyio.move_on_after(KEPT_SECONDS):
                    await visit.ended.wait()
                with suppress(StoreUnavailable):
                    since = await self._logins.since(visit)
                    if since not in (None, self._refused):
                        visit.ended.set()
        return visit.ended.is_set()


class BearerAuth(httpx2.Auth):
    """Sends the access token of a principal with each request to a service, and renews it when it is refused."""

    def __init__(
        self, logins: ServiceLogins, owner: str, service: str, config: UpstreamConfig
    ) -> None:
        self._logins = logins
        self._owner = owner
        self._service = service
        self._config = config
        self._masks = logins.masks(owner, service)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        bearer = await self._bearer(request)
        self._use(request, bearer)
        response = yield request
        challenge = response.headers.get("www-authenticate", "")
        if response.status_code == 401 and bearer is not None:
            renewed = await self._bearer(request, bearer, is_invalid=INVALID in challenge)
            if renewed is not None and renewed.token != bearer.token:
                bearer = renewed
                self._use(request, bearer)
                response = yield request
                challenge = response.headers.get("www-authenticate", "")
                if response.status_code == 401:
                    self._logins.note_refused(self._owner, self._service)
        if response.status_code == 401 and (CHALLENGE in challenge or self._may_log_in(challenge)):
            if bearer is None:
                self._logins.audit.note_seldom("refuse", self._owner, self._service, "absent")
            request.extensions[LOGIN] = await self._login(self._config)
        elif response.status_code == 403 and LACKS_SCOPE in challenge and bearer is not None:
            config = _with_more_scopes(self._config, bearer.scope, response)
            if config is not None:
                request.extensions[LOGIN] = await self._login(config)

    def _may_log_in(self, challenge: str) -> bool:
        """Whether a server without the metadata of RFC 9728 in its challenge may have a login, as older ones do."""
        return "bearer" in challenge.lower() and not self._config.headers

    def _use(self, request: httpx2.Request, bearer: Bearer | None) -> None:
        """Send a token, and hide it in the response."""
        request.extensions[MASKS] = (self._masks,)
        if bearer is not None:
            request.headers["authorization"] = f"Bearer {bearer.token}"

    async def _login(self, config: UpstreamConfig) -> AwaitedLogin | None:
        """Return the login that the user of this machine can do; None for another principal."""
        visit = await self._logins.visit(self._owner, self._service, config)
        if visit is None:
            return None
        try:
            return AwaitedLogin(self._logins, visit, await self._logins.since(visit))
        except StoreUnavailable:
            return None

    async def _bearer(
        self, request: httpx2.Request, refused: Bearer | None = None, *, is_invalid: bool = False
    ) -> Bearer | None:
        logins, owner, service = self._logins, self._owner, self._service
        try:
            return await logins.bearer(
                owner, service, self._config, but=refused, is_invalid=is_invalid
            )
        except StoreUnavailable as error:
            raise TokenUnavailable(unavailable(service, str(error), None), request) from error
        except ServiceUnavailable as error:
            raise TokenUnavailable(error, request) from error


def _with_more_scopes(
    config: UpstreamConfig, granted: str | None, response: httpx2.Response
) -> UpstreamConfig | None:
    """Return a configuration whose login has the scopes that a server wants, too (SEP-2350); None if it had them all."""
    from mcp.client.auth.utils import extract_scope_from_www_auth, union_scopes

    scope = union_scopes(granted, extract_scope_from_www_auth(response))
    if scope is None or set(scope.split()) == set((granted or "").split()):
        return None
    login = config.login.model_copy(update={"scope": scope})
    return config.model_copy(update={"login": login})
