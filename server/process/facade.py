"""The authorization server of a process."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken

from ...access.audit.people import PersonAudit
from ...access.claims import principal_of
from ...access.facade.app import Facade
from ..gateway.gateway import Gateway


def create_facade(gateway: Gateway) -> Facade:
    """Return the authorization server over the store of a gateway, with its logins in the audit log."""
    config = gateway.config
    note = _LoginNotes(gateway.person_audit).note
    return Facade(config.auth, config.server.public_url or "", gateway.store, note)


class _LoginNotes:
    """Writes the logins at the authorization server to the audit log."""

    def __init__(self, audit: PersonAudit | None) -> None:
        self._audit = audit

    def note(self, outcome: str, person: AccessToken | None, address: str) -> None:
        if self._audit is None:
            return
        if person is None:
            # Strangers cause them, and must not fill the store.
            self._audit.note_refusal("authorize", outcome, transport="http", address=address)
            return
        self._audit.note_login("authorize", outcome, None, principal_of(person), address, "http")
