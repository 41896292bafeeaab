"""The reasons for which a person should look at the console, besides the agents that ask: sessions tell of those."""

from __future__ import annotations

from ..server.gateway.gateway import Gateway
from ..sessions.calls.approval import title_of
from ..sessions.json_codec import JSON
from ..sessions.one_line import plain_name, plural
from ..sessions.store.events.records import REASONS, Reason
from ..tools.upstream.identity import pins_hash
from ..tools.upstream.service import UpstreamService
from .logins import ConsoleUser

MAX_NOTICES = 20
"""Notices of one reason for one person."""


async def read_notices(gateway: Gateway, user: ConsoleUser) -> list[JSON]:
    """Return the notices for a user: calls that wait for approval, logins that need their person, changed tools.

    Raises:
        StoreUnavailable: they cannot be read.
    """
    store, owner, now = gateway.store, user.owner, gateway.registry.core.clock.now()
    notices = [
        _notice("approval_needed", each.id, title_of(each), f"approvals/{each.id}")
        for each in await store.access.waiting_approvals(owner, now, MAX_NOTICES)
    ]
    for login in await store.logins.that_need_human(owner, MAX_NOTICES):
        key = f"{login.owner} {login.name} {login.since}"
        notices.append(_notice("login_needed", key, plain_name(login.name), "logins"))
    if user.has_role("operator"):
        for service, count in (await count_changes(gateway)).items():
            words = f"{service}: {plural(count, 'change')}"
            notices.append(_notice("tool_changed", f"{service} {count}", words, "services"))
    return notices


async def count_changes(gateway: Gateway) -> dict[str, int]:
    """Return the number of changes that no person has accepted, of each service that has some.

    Raises:
        StoreUnavailable: they cannot be read.
    """
    changes = await gateway.store.access.count_changed_pins()
    return {
        name: changes[name, config_hash]
        for name, service in gateway.services.items()
        if isinstance(service, UpstreamService)
        and (name, config_hash := pins_hash(service.config)) in changes
    }


def _notice(reason: Reason, key: str, words: str, page: str) -> JSON:
    return {
        "reason": reason,
        "key": f"{reason} {key}",
        "text": REASONS[reason],
        "words": words,
        "page": page,
    }
