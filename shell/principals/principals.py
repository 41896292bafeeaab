"""`statehold principals list` and `show`: the callers of a store, their usage and their limits."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from ...access.audit.recorder import Actor, Audit
from ...access.tokens import StaticToken, read_tokens
from ...server.config.model import Config
from ...server.exit_codes import NOT_FOUND, OK
from ...server.gateway.stores import may_exist, store_of
from ...server.printing import complain
from ...sessions.json_codec import JSON
from ...sessions.principals.audit_log import AuditLog
from ...sessions.principals.limits import FIELDS, PrincipalLimits
from ...sessions.principals.rules import (
    PolicyLimits,
    PolicySubject,
    PolicyTarget,
    PrincipalRecord,
    PrincipalSummary,
    RevocationRecord,
)
from ...sessions.records import Principal
from ...sessions.store.sql import SQLStore
from ...sessions.times import ago, timestamp
from ...sessions.wording import did_you_mean, near_names
from ...tools.processes.workdir import bytes_of_files
from ..output import CommandError, pairs, say, say_json, table
from ..parser import CommandLine


def run(config: Config, arguments: CommandLine) -> int:
    """Run one of the commands, and return the exit code."""
    if config.ephemeral or not may_exist(config):
        return complain("there is no caller: nothing is stored yet", NOT_FOUND)
    return anyio.run(_run, config, arguments)


async def _run(config: Config, arguments: CommandLine) -> int:
    try:
        async with store_of(config) as store:
            known = await KnownPrincipals.read(config, store)
            return await (_list if arguments.action == "list" else _show)(known, arguments)
    except CommandError as error:
        return complain(str(error), error.exit_code)


@dataclass(frozen=True, slots=True)
class KnownPrincipals:
    """The principals of one store, as they are when it is read."""

    config: Config
    store: SQLStore
    summaries: Mapping[str, PrincipalSummary]
    """Those that have sessions, by their keys."""
    records: list[PrincipalRecord]
    limits: PrincipalLimits
    revoked: Mapping[str, RevocationRecord]
    """Those whose access is revoked, by their keys."""

    @classmethod
    async def read(cls, config: Config, store: SQLStore) -> KnownPrincipals:
        """Read the principals of a store."""
        summaries = {each.owner: each for each in await store.access.principals()}
        records = await store.access.changed_principals(0)
        limits = PrincipalLimits(config.policy())
        limits.update(records)
        now, revocations = time.time(), await store.access.revocations()
        revoked = {each.owner: each for each in revocations if each.is_in_force(now)}
        return cls(config, store, summaries, records, limits, revoked)

    def owners(self) -> list[str]:
        """Return the keys of all: those with sessions, the last used first, then those with a row of their own."""
        rows = [
            Principal(issuer=each.target.issuer, subject=each.target.name).key
            for each in self.records
            if each.target.kind is PolicySubject.PRINCIPAL
        ]
        return list(dict.fromkeys([*self.summaries, *rows, *self.revoked]))

    def warn_of_stranger(self, principal: Principal) -> None:
        """Warn if nobody of this name was ever seen: what is done to a misspelled name leaves its caller as it is."""
        callers = self.callers()
        if all(each.key != principal.key for each in callers):
            _warn(principal.words, principal.subject, {each.subject for each in callers})

    def warn_of_group(self, issuer: str, group: str) -> None:
        """Warn if no caller of an issuer was ever seen in a group of this name."""
        known = {
            name
            for each in self.records
            if each.target.issuer == issuer
            for name in each.membership.groups
        }
        if group not in known:
            _warn(f"group {group}", group, known)

    def callers(self) -> list[Principal]:
        """Return the principals of the store, and those of static tokens.

        Raises:
            ConfigError: the file of static tokens cannot be read.
        """
        tokens = read_static_tokens(self.config)
        return [*map(Principal.of_key, self.owners()), *(token.principal for token in tokens)]

    def find(self, arguments: CommandLine) -> Principal:
        """Return the principal that a command line names.

        Raises:
            CommandError: there is none, or there are several.
        """
        subject, issuer = arguments.subject, arguments.issuer
        found = [
            principal
            for principal in map(Principal.of_key, self.owners())
            if principal.subject == subject and issuer in (None, principal.issuer)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            issuers = ", ".join(repr(principal.issuer) for principal in found)
            raise CommandError.usage(
                f"{subject} is known of several issuers: {issuers}; give --issuer"
            )
        hint = did_you_mean(subject, {Principal.of_key(owner).subject for owner in self.owners()})
        raise CommandError(
            "principal_not_found",
            f"there is no caller {subject}.{hint} See: statehold principals list",
            NOT_FOUND,
        )

    async def stored_bytes(self, owner: str) -> int:
        """Return the bytes that the sessions of a principal take."""
        size = await self.store.usage(owner)
        count = partial(bytes_of_files, self.config.data, await self.store.ids(owner))
        return size + await anyio.to_thread.run_sync(count)

    async def describe(self, owner: str) -> JSON:
        """Return a principal with its usage, as JSON."""
        principal, summary = Principal.of_key(owner), self.summaries.get(owner)
        policy = self.limits.policy(PolicyTarget.principal(principal))
        membership = self.limits.membership(owner)
        return {
            "subject": principal.subject,
            "issuer": principal.issuer,
            "groups": list(membership.groups),
            "role": membership.role,
            "open_sessions": 0 if summary is None else summary.open_sessions,
            "sessions": 0 if summary is None else summary.sessions,
            "stored_bytes": await self.stored_bytes(owner) if summary else 0,
            "used_at": None if summary is None else timestamp(summary.used_at),
            "policy": _policy(policy),
            "revoked": None
            if owner not in self.revoked
            else describe_revocation(self.revoked[owner]),
        }


def read_static_tokens(config: Config) -> list[StaticToken]:
    """Return the static tokens of a configuration.

    Raises:
        ConfigError: their file cannot be read.
    """
    path = config.server.tokens
    return [] if path is None or not path.exists() else list(read_tokens(path).values())


def describe_revocation(record: RevocationRecord) -> JSON:
    """Return a revocation as JSON."""
    return {
        "revoked_at": timestamp(record.revoked_at),
        "revoked_by": record.revoked_by,
        "reason": record.reason,
        "until": None if record.until is None else timestamp(record.until),
        "keeps_sessions": record.keeps_sessions,
    }


async def _list(known: KnownPrincipals, arguments: CommandLine) -> int:
    principals = [await known.describe(owner) for owner in known.owners()]
    groups = [
        {"group": rule.target.name, "issuer": rule.target.issuer, "policy": _policy(rule.limits)}
        for rule in known.config.policy().principal_policies
        if rule.target.kind is PolicySubject.GROUP
    ]
    if arguments.json:
        say_json({"principals": principals, "groups": groups})
        return OK
    now = time.time()
    used = {owner: each.used_at for owner, each in known.summaries.items()}
    rows = [
        [
            each["subject"],
            each["issuer"],
            each["open_sessions"],
            each["sessions"],
            _size_words(each["stored_bytes"]),
            ago(used.get(owner), now),
            ", ".join(each["policy"]),
            ago(known.revoked[owner].revoked_at, now) if owner in known.revoked else "",
        ]
        for owner, each in zip(known.owners(), principals, strict=True)
    ]
    head = ["SUBJECT", "ISSUER", "OPEN", "SESSIONS", "STORED", "LAST USE", "LIMITED", "REVOKED"]
    say(table(head, rows) if rows else "no caller has a session or a policy")
    if groups:
        named = [[each["group"], each["issuer"], ", ".join(each["policy"])] for each in groups]
        say("\n" + table(["GROUP", "ISSUER", "LIMITED"], named))
    return OK


async def _show(known: KnownPrincipals, arguments: CommandLine) -> int:
    owner = known.find(arguments).key
    principal = await known.describe(owner)
    limits = known.limits.of(owner).describe()
    if arguments.json:
        say_json({**principal, "limits": limits})
        return OK
    summary = known.summaries.get(owner)
    say(
        pairs(
            [
                ("subject", principal["subject"]),
                ("issuer", principal["issuer"]),
                ("groups", ", ".join(principal["groups"])),
                ("role", principal["role"]),
                ("open sessions", principal["open_sessions"]),
                ("all sessions", principal["sessions"]),
                ("stored", _size_words(principal["stored_bytes"])),
                ("last use", ago(summary.used_at, time.time()) if summary else "never"),
                *_revocation_words(known.revoked.get(owner)),
            ]
        )
    )
    rows = [[key, _limit_words(key, limits[key]["limit"]), limits[key]["source"]] for key in FIELDS]
    say("\n" + table(["LIMIT", "VALUE", "FROM"], rows))
    return OK


def _revocation_words(record: RevocationRecord | None) -> list[tuple[str, str]]:
    if record is None:
        return []
    until = "" if record.until is None else f" until {timestamp(record.until)}"
    reason = f": {record.reason}" if record.reason else ""
    return [("revoked", f"{timestamp(record.revoked_at)}{until} by {record.revoked_by}{reason}")]


@asynccontextmanager
async def recorded(known: KnownPrincipals, operation: str) -> AsyncGenerator[None]:
    """Record the change of the block in the audit log, if there is one."""
    if known.config.audit == "off":
        yield
        return
    is_required = known.config.audit == "required"
    audit = Audit(AuditLog(known.store, "command", is_required=is_required))
    with await audit.admit(Actor.of_command(), operation):
        yield


def _limit_words(key: str, value: Any) -> str:
    """Return a limit as the tables show it."""
    if key in ("services", "browser_hosts"):
        return "any" if value is None else ", ".join(value) or "none"
    if key == "approve":
        return ", ".join(pattern["tool"] for pattern in value or ()) or "none"
    if key == "tool_rates":
        return ", ".join(f"{name}: {_rate(rate)}" for name, rate in value.items()) or "no limit"
    if key == "rate" and value:
        return _rate(value)
    if not value:
        return "no limit"
    if key == "stored_bytes":
        return _size_words(value)
    return f"{value:g} s" if key in ("idle", "lifetime") else str(value)


def _rate(rate: Mapping[str, Any]) -> str:
    burst = f", {rate['burst']} at once" if rate.get("burst") else ""
    return f"{rate['calls_per_minute']:g} a minute{burst}" if rate["calls_per_minute"] else "none"


def _size_words(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} B"


def _policy(limits: PolicyLimits | None) -> JSON:
    return {} if limits is None else limits.model_dump(exclude_none=True, mode="json")


def _warn(words: str, name: str, known: Iterable[str]) -> None:
    near = near_names(name, known, count=3)
    hint = f"; near: {', '.join(near)}" if near else ""
    complain(f"warning: {words} has never been seen{hint}", OK)
