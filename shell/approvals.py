"""`statehold approvals`: see the calls that wait for a person, and approve or refuse them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import anyio

from ..access.audit.recorder import Actor, Audit
from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import FAILURE, NOT_FOUND, OK
from ..server.gateway.stores import store_of
from ..server.printing import complain
from ..sessions.calls.approval import Decision, decide, describe_approval, show_arguments, title_of
from ..sessions.clock import SystemClock
from ..sessions.principals.audit_log import AuditLog
from ..sessions.store.base import ApprovalRecord
from .output import confirm, plain, say, say_json, table
from .parser import CommandLine

_COLUMNS = ("id", "state", "tool", "session_id", "owner", "ends_at")


def run(config: Config, arguments: CommandLine) -> int:
    """Run one action and return its exit code."""
    if config.ephemeral:
        raise ConfigError("approvals are kept in the data folder; leave out ephemeral")
    if arguments.action == "list":
        return _list(anyio.run(_read_all, config), json=arguments.json)
    found = anyio.run(_read, config, arguments.id)
    is_open = found is not None and found.ends_at > SystemClock().now()
    if found is None or not is_open or (arguments.action == "approve" and not found.arguments):
        return complain(f"no call waits as {plain(arguments.id)}", NOT_FOUND)
    decision: Decision = "refuse"
    if arguments.action == "approve":
        decision = "approve_for_session" if arguments.always else "approve"
        say(f"{title_of(found)} in the session {found.session_id}")
        say(show_arguments(found.arguments))
        question = "Approve all calls of it in this session?" if arguments.always else "Approve?"
        # No event loop runs here: it would delay Ctrl-C until the answer.
        if not arguments.yes and not (sys.stdin.isatty() and confirm(question)):
            return complain("not approved; --yes approves without a question", FAILURE)
    if not anyio.run(_decide, config, found, decision):
        return complain("it was decided meanwhile, or has ended", NOT_FOUND)
    say("Refused." if decision == "refuse" else "Approved.")
    return OK


def _list(approvals: Sequence[ApprovalRecord], *, json: bool) -> int:
    described = [*map(describe_approval, approvals)]
    if json:
        say_json({"approvals": described})
        return OK
    rows = [[each[name] for name in _COLUMNS] for each in described]
    say(table([*map(str.upper, _COLUMNS)], rows) if rows else "No call waits for a person.")
    return OK


async def _read_all(config: Config) -> Sequence[ApprovalRecord]:
    async with store_of(config) as store:
        return await store.access.open_approvals(None, SystemClock().now())


async def _read(config: Config, approval_id: str) -> ApprovalRecord | None:
    async with store_of(config) as store:
        return await store.access.approval(approval_id)


async def _decide(config: Config, approval: ApprovalRecord, decision: Decision) -> bool:
    async with store_of(config) as store:
        required, clock = config.audit == "required", SystemClock()
        log = None if config.audit == "off" else AuditLog(store, "command", is_required=required)
        admit = partial(Audit(log, clock).admit, Actor.of_command())
        return await decide(store, admit, approval, decision, clock.now())
