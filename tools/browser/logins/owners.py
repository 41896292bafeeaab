"""The owners of the logins that principals get: they themselves, or the operator by `lend`; and who logs in with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ....sessions.errors import InvalidArgument
from ....sessions.records import LOCAL, Principal
from ....sessions.services import SessionView
from ...logins.audit import LoginAudit
from ...logins.config import BrowserLoginConfig

if TYPE_CHECKING:
    from ....sessions.store.sql import SQLStore


class LoginOwners:
    """The owners of the logins of one process, and the sessions in which they log in. Any task may use it."""

    def __init__(
        self,
        settings: Mapping[str, BrowserLoginConfig],
        store: SQLStore,
        audit: LoginAudit,
        groups_of: Callable[[str], Collection[str]],
    ) -> None:
        """`groups_of` returns the groups of a principal, by its key."""
        self._settings = settings
        self._store = store
        self._audit = audit
        self._groups_of = groups_of
        self.log_ins: dict[str, str] = {}
        """By session, the login with which its person is to log in, until the person has control."""

    async def owner_of(self, owner: str, name: str) -> str:
        """Return whose login a principal gets: its own, or that of the operator if it may have that one.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        if owner == LOCAL.key or self.rule(owner, name) is None:
            return owner
        return owner if await self._store.logins.find(owner, name) is not None else LOCAL.key

    def rule(self, owner: str, name: str) -> bool | None:
        """Return whether scripts are allowed to a principal by the rules of a login; None if no rule names it."""
        subject = Principal.of_key(owner).subject
        groups = {*self._groups_of(owner)}
        allowed = [
            rule.scripts
            for rule in self._settings[name].lend
            if subject in rule.principals or groups.intersection(rule.groups)
        ]
        return any(allowed) if allowed else None

    async def admit_log_in(self, owner: str, name: str) -> None:
        """Record that a principal logs in with a login of its own, before its session begins.

        Raises:
            InvalidArgument: The principal gets that of the operator.
            StoreUnavailable: The store, or an audit log that is required, does not answer.
        """
        if await self.owner_of(owner, name) != owner:
            raise InvalidArgument(f"The login {name} is the operator's, who logs in there.")
        await self._audit.admit("grant", owner, name)

    def awaits_person(self, view: SessionView, key: tuple[str, str]) -> bool:
        """Return whether a person is to log in with this login, of an owner and a name, in a session."""
        return key == (view.owner, self.log_ins.get(view.id))
