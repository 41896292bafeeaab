"""`statehold services accept`: shows how the definitions of a service have changed, and accepts them."""

from __future__ import annotations

import sys

import anyio
import anyio.to_thread

from ..access.audit.recorder import Actor
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

_COLOURS = {"same": "", "old": "red", "new": "green"}
_MARKS = {"same": ("", ""), "old": ("[-", "-]"), "new": ("{+", "+}")}


def accept(config: Config, arguments: CommandLine) -> int:
    """Show each change of a service and ask about it. Return the exit code."""
    service = config.enabled_services().get(arguments.service)
    if not isinstance(service, UpstreamConfig):
        raise ConfigError(f"{arguments.service}: is no enabled service that is an MCP server")
    if config.ephemeral:
        raise ConfigError("definitions are kept in the data folder; leave out ephemeral")
    return anyio.run(_accept, config, arguments, pins_hash(service))


async def _accept(config: Config, arguments: CommandLine, current: str) -> int:
    async with store_of(config) as store:
        changed = await store.access.changed_pins(arguments.service)
        changed = [each for each in changed if each.config_hash == current]
        if arguments.json:
            say_json({"changes": [_describe(each) for each in changed]})
            return OK
        required = config.audit == "required"
        log = None if config.audit == "off" else AuditLog(store, "command", is_required=required)
        left = 0
        for each in changed:
            say(f"{each.kind} {plain(each.name)}\n\n{_shown(each)}\n")
            if not arguments.yes and not (sys.stdin.isatty() and await _ask(each)):
                left += 1
                continue
            actor = Actor.of_command()
            if not await accept_pin(store, log, each, SystemClock().now(), name=actor.name):
                left += 1
                complain(f"{plain(each.name)} has changed once more; look at it again")
        if left:
            return complain(f"{plural(left, 'change')} not accepted; --yes accepts all", FAILURE)
    say(f"{arguments.service} has no change that waits. A server that runs follows within seconds.")
    return OK


async def _ask(pin: PinRecord) -> bool:
    return await anyio.to_thread.run_sync(confirm, f"Accept {pin.kind} {plain(pin.name)}?")


def _shown(pin: PinRecord) -> str:
    """Return the difference as words: in colour at a terminal that has them, else with marks."""
    is_coloured = colour("x", "red") != "x"
    texts: list[str] = []
    for kind, text in difference(pin.definition, pin.offered):
        before, after = ("", "") if is_coloured else _MARKS[kind]
        texts.append(f"{before}{colour(text, _COLOURS[kind])}{after}" if kind != "same" else text)
    return "".join(texts)


def _describe(pin: PinRecord) -> dict[str, object]:
    parts = difference(pin.definition, pin.offered)
    return {"kind": pin.kind, "name": pin.name, "difference": [list(part) for part in parts]}
