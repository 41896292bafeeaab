"""`statehold principals revoke`, `restore` and `forget`: end the access of a caller, give it back, or delete its data."""

from __future__ import annotations

import time
from collections.abc import Iterable

import anyio
import anyio.to_thread

from ...access.audit.recorder import user_name
from ...server.config.model import Config
from ...server.exit_codes import BUSY, NOT_FOUND, OK
from ...server.gateway.stores import may_exist, store_of
from ...server.printing import complain
from ...sessions.one_line import one_line, plural
from ...sessions.principals.rules import RevocationRecord
from ...sessions.records import LOCAL, Principal
from ...sessions.times import parse_expiry, timestamp
from ...sessions.wording import did_you_mean
from ...tools.processes.workdir import remove_files
from ..output import CommandError, say, say_json
from ..parser import CommandLine
from .principals import KnownPrincipals, describe_revocation, read_static_tokens, recorded

REASON_CHARACTERS = 500


def run(config: Config, arguments: CommandLine) -> int:
    """Run one of the commands, and return the exit code.

    Raises:
        ConfigError: the file of static tokens cannot be read.
    """
    if config.ephemeral or (arguments.action != "revoke" and not may_exist(config)):
        return complain("no caller is revoked: nothing is stored", NOT_FOUND)
    return anyio.run(_run, config, arguments)


async def _run(config: Config, arguments: CommandLine) -> int:
    try:
        async with store_of(config) as store:
            known = await KnownPrincipals.read(config, store)
            if arguments.action == "revoke":
                return await _revoke(known, arguments)
            if arguments.action == "forget":
                return await _forget(known, arguments)
            return await _restore(known, arguments)
    except CommandError as error:
        return complain(str(error), error.exit_code)


async def _revoke(known: KnownPrincipals, arguments: CommandLine) -> int:
    principal, now = _find_caller(known, arguments), time.time()
    if principal.key == LOCAL.key:
        raise CommandError.usage("the user of this machine needs no token, and cannot be revoked")
    try:
        until = None if arguments.until is None else parse_expiry(arguments.until, now)
    except ValueError as error:
        raise CommandError.usage(f"--until {error}, or 30d") from None
    reason = one_line(arguments.reason or "")[:REASON_CHARACTERS]
    record = RevocationRecord(
        owner=principal.key,
        revoked_at=now,
        revoked_by=user_name(),
        reason=reason or None,
        until=until,
        keeps_sessions=arguments.keep_sessions,
    )
    words = f"principals revoke {principal.words}" + (f" ({reason})" if reason else "")
    async with recorded(known, words):
        await known.store.access.revoke(record)
    if arguments.json:
        say_json(
            {
                "subject": principal.subject,
                "issuer": principal.issuer,
                **describe_revocation(record),
            }
        )
    else:
        end = "" if until is None else f" until {timestamp(until)}"
        say(f"revoked {principal.words}{end}; {_effect(known, record)}")
        known.warn_of_stranger(principal)
    return OK


def _effect(known: KnownPrincipals, record: RevocationRecord) -> str:
    summary = known.summaries.get(record.owner)
    count = 0 if summary is None else summary.open_sessions
    rest = "its tokens are refused, its logins and streams end"
    if count == 0:
        return rest
    sessions = plural(count, "open session")
    return f"{rest}; {sessions} {'kept' if record.keeps_sessions else 'closed'}"


async def _restore(known: KnownPrincipals, arguments: CommandLine) -> int:
    revoked = [Principal.of_key(each.owner) for each in await known.store.access.revocations()]
    if arguments.token is not None:
        wanted = _find_caller(known, arguments)
        found = [principal for principal in revoked if principal.key == wanted.key]
    else:
        found = _named(revoked, arguments)
    principal = _only(found, arguments)
    if principal is None:
        who = str(arguments.subject or arguments.token)
        hint = did_you_mean(who, [each.subject for each in revoked])
        text = f"{who} is not revoked.{hint} See: statehold principals list"
        raise CommandError("principal_not_found", text, NOT_FOUND)
    async with recorded(known, f"principals restore {principal.words}"):
        await known.store.access.restore(principal.key)
    if arguments.json:
        say_json({"subject": principal.subject, "issuer": principal.issuer})
    else:
        say(f"restored {principal.words}")
    return OK


async def _forget(known: KnownPrincipals, arguments: CommandLine) -> int:
    principal = known.find(arguments)
    if principal.key not in known.revoked:
        raise CommandError.usage(
            f"{principal.words} is not revoked, and would begin anew; run: statehold principals revoke"
        )
    async with recorded(known, f"principals forget {principal.words}"):
        ids = await known.store.access.forget(principal.key)
        if ids is None:
            text = f"sessions of {principal.words} are still being closed; try again"
            raise CommandError("sessions_open", text, BUSY)
        await anyio.to_thread.run_sync(remove_files, known.config.data, ids)
    if arguments.json:
        say_json({"subject": principal.subject, "issuer": principal.issuer, "sessions": len(ids)})
    else:
        say(f"deleted {plural(len(ids), 'session')}, the logins and the key of {principal.words}")
    return OK


def _find_caller(known: KnownPrincipals, arguments: CommandLine) -> Principal:
    """Return the caller that a command line names, who may never have called.

    Raises:
        CommandError: it names none, or several.
    """
    if (arguments.subject is None) == (arguments.token is None):
        raise CommandError.usage("either SUBJECT or --token is needed; give one of them")
    if arguments.token is not None:
        tokens = read_static_tokens(known.config)
        found = [token.principal for token in tokens if token.name == arguments.token]
        principal = _only(found, arguments)
        if principal is None:
            hint = did_you_mean(arguments.token, [token.name for token in tokens])
            text = (
                f"no static token has the name {arguments.token}.{hint} See: statehold tokens list"
            )
            raise CommandError("token_not_found", text, NOT_FOUND)
        return principal
    if arguments.issuer is not None:
        return Principal(issuer=arguments.issuer, subject=arguments.subject)
    callers = known.callers()
    principal = _only(_named(callers, arguments), arguments)
    if principal is not None:
        return principal
    issuers = [each.issuer for each in known.config.auth.issuers]
    if len(issuers) != 1:
        hint = did_you_mean(arguments.subject, {each.subject for each in callers}, count=3)
        raise CommandError.usage(
            f"{arguments.subject} has never called.{hint} See: statehold principals list; a new one needs --issuer"
        )
    return Principal(issuer=issuers[0], subject=arguments.subject)


def _named(principals: Iterable[Principal], arguments: CommandLine) -> list[Principal]:
    subject, issuer = arguments.subject, arguments.issuer
    return [
        each for each in principals if each.subject == subject and issuer in (None, each.issuer)
    ]


def _only(principals: Iterable[Principal], arguments: CommandLine) -> Principal | None:
    """Return the one principal of these, None if there is none.

    Raises:
        CommandError: there are several.
    """
    by_key = {each.key: each for each in principals}
    if len(by_key) > 1:
        words = ", ".join(each.words for each in by_key.values())
        raise CommandError.usage(
            f"{arguments.subject or arguments.token} names several: {words}; give SUBJECT and --issuer"
        )
    return next(iter(by_key.values()), None)
