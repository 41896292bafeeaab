"""The authorization server of a process."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken

from ...access.audit.recorder import NOBODY, Actor, Audit
from ...access.claims import principal_of
from ...access.facade.app import Facade
from ...sessions.audit.entry import AuditEvent
from ..gateway.gateway import Gateway


def create_facade(gateway: Gateway) -> Facade:
    """Return the authorization server over the store of a gateway, with its logins in the audit log."""
    config = gateway.config
    note = _LoginNotes(gateway.audit).note
    return Facade(config.auth, config.server.public_url or "", gateway.store, note)


class _LoginNotes:
    """Writes the logins at the authorization server to the audit log."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def note(self, outcome: str, person: AccessToken | None, address: str) -> None:
        # What strangers cause is no login.
        event = AuditEvent.REFUSAL if person is None else AuditEvent.LOGIN
        principal = NOBODY if person is None else principal_of(person)
        actor = Actor(principal=principal, transport="http", address=address)
        self._audit.record(event, actor, "authorize", outcome)
