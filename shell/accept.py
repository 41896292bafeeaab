"""`statehold services accept`: shows how the definitions of a service have changed, and accepts them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import Final

import anyio

from ..access.audit.recorder import Actor, Audit
from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, OK
from ..server.gateway.stores import store_of
from ..server.printing import complain
from ..sessions.clock import SystemClock
from ..sessions.one_line import plural
from ..sessions.principals.audit_log import AuditLog
from ..sessions.store.base import PinRecord
from ..tools.pins.acceptance import accept_pin, difference
from ..tools.upstream.config import UpstreamConfig
from ..tools.upstream.identity import pins_hash
from .output import colour, confirm, plain, say, say_json
from .parser import CommandLine

_STYLES: Final = {"same": ("", "", ""), "old": ("red", "[-", "-]"), "new": ("green", "{+", "+}")}
"""The colour of each part of a difference, and its marks, which show blanks where colours do not."""


def accept(config: Config, arguments: CommandLine) -> int:
    """Show each change of a service, ask about it, and accept the chosen ones at the end. Return the exit code."""
    service = config.enabled_services().get(arguments.service)
    if not isinstance(service, UpstreamConfig):
        raise ConfigError(f"{arguments.service}: is not an enabled MCP server")
    if config.ephemeral:
        raise ConfigError("definitions are kept in the data folder; leave out ephemeral")
    changed = anyio.run(_read, config, arguments.service, pins_hash(service))
    # No event loop runs here: it would delay Ctrl-C until the answer.
    can_ask = sys.stdin.isatty()
    chosen = [each for each in changed if _is_chosen(each, arguments, can_ask=can_ask)]
    accepted = anyio.run(_accept, config, chosen) if chosen else set[str]()
    if arguments.json:
        say_json({"changes": [_describe(each, accepted) for each in changed]})
    elif accepted:
        words = plural(len(accepted), "definition")
        say(f"Accepted {words}. A server that runs follows within seconds.")
    elif not changed:
        say(f"{arguments.service} has no change that waits.")
    stale = [each for each in chosen if each.id not in accepted]
    for each in stale:
        complain(f"{plain(each.name)} has changed once more; look at it again")
    if arguments.json or arguments.yes or can_ask:
        return FAILURE if stale else OK
    words = plural(len(changed), "change")
    return complain(f"{words} not accepted; --yes accepts all") if changed else OK


def _is_chosen(pin: PinRecord, arguments: CommandLine, *, can_ask: bool) -> bool:
    if arguments.json:
        return arguments.yes
    say(f"{pin.kind} {plain(pin.name)}\n\n{_shown(pin)}\n")
    return arguments.yes or (can_ask and confirm(f"Accept {pin.kind} {plain(pin.name)}?"))


async def _read(config: Config, service: str, current: str) -> list[PinRecord]:
    async with store_of(config) as store:
        return await store.access.changed_pins(service, current)


async def _accept(config: Config, chosen: Iterable[PinRecord]) -> set[str]:
    """Accept changes. Return the ids of the pins that the service has not changed once more."""
    async with store_of(config) as store:
        required, clock = config.audit == "required", SystemClock()
        log = None if config.audit == "off" else AuditLog(store, "command", is_required=required)
        admit = partial(Audit(log, clock).admit, Actor.of_command())
        return {each.id for each in chosen if await accept_pin(store, admit, each, clock.now())}


def _shown(pin: PinRecord) -> str:
    """Return the difference as words with marks, and in colour at a terminal that has them."""
    texts: list[str] = []
    for kind, text in difference(pin.definition, pin.offered):
        name, before, after = _STYLES[kind]
        texts.append(colour(f"{before}{text}{after}", name))
    return "".join(texts)


def _describe(pin: PinRecord, accepted: set[str]) -> dict[str, object]:
    return {
        "kind": pin.kind,
        "name": pin.name,
        "difference": [list(part) for part in difference(pin.definition, pin.offered)],
        "accepted": pin.id in accepted,
    }
