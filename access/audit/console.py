"""Records the requests of the console: changes before and after they run, looks now and then, logins and refusals."""

from __future__ import annotations

from typing import Final

from ...sessions.records import LOCAL, Principal
from .people import NOBODY, PersonAudit
from .requests import OpenRequest

UNRECORDED: Final = frozenset(
    {"login", "login_ways", "logout", "me", "openapi", "events", "input", "act_renew"}
)
"""Routes that record themselves, or that an open page uses all the time: taking control and handing it back are recorded."""
TRANSPORT: Final = "console"


class ConsoleAudit:
    """Records for one console. Without an audit log it does nothing."""

    def __init__(self, people: PersonAudit | None) -> None:
        self._people = people

    async def admit(
        self,
        route: str,
        name: str,
        principal: Principal | None,
        session_id: str | None,
        address: str,
        *,
        is_change: bool,
    ) -> OpenRequest | None:
        """Record a request that is about to run; end() the one that is returned.

        Raises:
            StoreUnavailable: the log is required and could not be written; the request must not run.
        """
        if self._people is None or route in UNRECORDED:
            return None
        operation, actor = f"console/{route}", principal or LOCAL
        if is_change:
            return await self._people.admit(
                name=name,
                operation=operation,
                session_id=session_id,
                principal=actor,
                transport=TRANSPORT,
                address=address,
            )
        await self._people.look(
            name=name,
            operation=operation,
            session_id=session_id,
            principal=actor,
            transport=TRANSPORT,
            address=address,
        )
        return None

    def note_refused_look(
        self,
        route: str,
        name: str,
        principal: Principal | None,
        session_id: str | None,
        address: str,
        *,
        outcome: str,
    ) -> None:
        """Record that a look which was admitted found nothing that its user may see."""
        if self._people is not None and route not in UNRECORDED:
            self._people.note_refused_look(
                name=name,
                operation=f"console/{route}",
                session_id=session_id,
                outcome=outcome,
                principal=principal or LOCAL,
                transport=TRANSPORT,
                address=address,
            )

    def note_login(
        self,
        route: str,
        outcome: str,
        name: str | None,
        principal: Principal | None,
        address: str,
    ) -> None:
        """Record a login or a logout that ended, well or with an error."""
        if self._people is not None:
            actor = principal or (NOBODY if name is None else LOCAL)
            self._people.note_login(route, outcome, name, actor, address)

    def note_refusal(
        self,
        route: str,
        code: str,
        name: str | None,
        principal: Principal | None,
        session_id: str | None,
        address: str,
    ) -> None:
        """Record a request that was not admitted. Without a name, it is that of a stranger."""
        if self._people is not None:
            self._people.note_refusal(
                f"console/{route}",
                code,
                name=name,
                principal=principal or NOBODY,
                session_id=session_id,
                transport=TRANSPORT,
                address=address,
            )
