"""The logins of the built-in browser: lent to sessions, and renewed by people who log in, by the tools of the browser."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...sessions.calls.request import Request
from ...sessions.calls.router import Router
from ...sessions.errors import InvalidArgument, LoginUnavailable, SessionError, StoreUnavailable
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.live.session import LiveSession
from ...sessions.records import Principal, SessionDriver
from ...sessions.registry import Registry
from ...sessions.transitions.create import CreationOptions
from ...tools.own.own_tool import ToolContext
from ...tools.upstream.resource_updates import InternalContext
from ..config.model import Config

if TYPE_CHECKING:
    from ...tools.browser.logins.leases import LoginLeases
    from ...tools.browser.logins.owners import LoginOwners

LEND_SECONDS: Final = 30
"""Seconds that a session waits for a login that another one has."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at a session in which a person logs in, in case that another process has it."""
LIFETIME_SECONDS: Final = 3600.0
"""Seconds after which such a session ends also if its process was killed."""
LOGIN_RETURNED: Final = "login_returned"
"""The reason of the end of such a session."""
RESTART: Final = "Restart it with the configuration that has the login."


class BrowserLogins:
    """The logins of one gateway. It keeps nothing between calls; without `leases` there is no login."""

    def __init__(
        self, config: Config, registry: Registry, router: Router, leases: LoginLeases | None
    ) -> None:
        self._config = config
        self._registry = registry
        self._router = router
        self._leases = leases

    async def lend(self, context: ToolContext, session: LiveSession, login: str) -> None:
        """Lend a login to a session by the tool of its browser. Raises like a call of it."""
        answer = await self._call(
            context, session.id, "login_use", login=login, wait_seconds=LEND_SECONDS
        )
        if answer.get("isError"):
            raise LoginUnavailable(f"The session did not get the login {login}.")

    async def log_in(self, principal: Principal, login: str) -> str:
        """Create a session that asks its person to log in at the first site of a login, and return its id.

        The session gets the login in any state, and gives it back and is closed when the person hands it back or leaves, or
        nobody comes within REQUEST_SECONDS of the control of sessions: then the login has its former state.

        Raises:
            InvalidArgument: There is no such login, or it is lent by the operator.
            SessionError: The session cannot be created, or does not get the login.
            StoreUnavailable: The store, or an audit log that is required, does not answer.
        """
        if self._leases is None:
            raise InvalidArgument("The server has no logins for browsers.", recovery=RESTART)
        site = self._leases.require(login).sites[0]
        owners = self._leases.owners
        await owners.admit_log_in(principal.key, login)
        title = {"title": f"Login {login}"}
        options = CreationOptions(
            services=self._browsers[:1], metadata=title, lifetime=LIFETIME_SECONDS
        )
        session = await self._registry.create(principal, options)
        context = ToolContext(principal)
        owners.log_ins[session.id] = login
        try:
            await self.lend(context, session, login)
            # A page that does not open is one for the person.
            await self._call(context, session.id, "browser_navigate", url=site)
            reason = f"Log in at {site}, then press Done."
            await self._registry.controls.request(principal, session.id, reason)
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(SessionError):
                await self._registry.close(principal, session.id, force=True)
            owners.log_ins.pop(session.id, None)
            raise
        self._registry.spawn(self._end_log_in, context, session.id, login, owners)
        return session.id

    async def _end_log_in(
        self, context: ToolContext, session_id: str, login: str, owners: LoginOwners
    ) -> None:
        """Wait until the person is done, then have the session give the login back, and close it."""
        registry, principal = self._registry, context.principal
        while not registry.draining:
            # The next look tries again.
            with suppress(SessionError, StoreUnavailable):
                record = await registry.core.store.get(session_id)
                if record is None or record.status is Status.CLOSED:
                    owners.log_ins.pop(session_id, None)
                    return
                if record.control.driver is SessionDriver.AGENT:
                    with suppress(SessionError):
                        await self._call(context, session_id, "login_release", login=login)
                    await registry.close(principal, session_id, force=True, reason=LOGIN_RETURNED)
            await registry.controls.wait_for_change(principal, session_id, seconds=LOOK_SECONDS)

    async def absent_of(self, principal: Principal, own: Container[str]) -> dict[str, str]:
        """Return the first sites of the logins that a principal may begin, by name; `own` are those that it has."""
        found: dict[str, str] = {}
        if self._leases is not None:
            for name, settings in self._leases.settings.items():
                owner = principal.key
                if name not in own and await self._leases.owners.owner_of(owner, name) == owner:
                    found[name] = settings.sites[0]
        return found

    def __contains__(self, login: str) -> bool:
        return self._leases is not None and login in self._leases.settings

    @property
    def _browsers(self) -> list[str]:
        """The services that are lent logins."""
        return [name for name, each in self._config.browsers().items() if not each.remote]

    async def _call(
        self, context: ToolContext, session_id: str, tool: str, **arguments: Any
    ) -> JSON:
        """Call a tool of the browser of a session, and return its result."""
        session = await self._registry.find(context.principal, session_id)
        service = next((name for name in self._browsers if name in session.bindings), None)
        if service is None:
            raise InvalidArgument(
                "A session without a browser that Statehold starts gets no login."
            )
        request = Request(context.principal, session_id, service, tool, arguments, is_internal=True)
        answer = await self._router.call(request, context.caller or InternalContext())
        return answer.payload
