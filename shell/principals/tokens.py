"""`statehold tokens`: the static bearer tokens in the file that `server.tokens` names."""

from __future__ import annotations

import time
from pathlib import Path

from ...access.config.auth import DEFAULT_ROLE
from ...access.config.types import ConfigError
from ...access.tokens import (
    StaticToken,
    add_token,
    read_tokens,
    remove_token,
)
from ...server.config.model import Config
from ...server.exit_codes import NOT_FOUND, OK, USAGE
from ...server.printing import complain, write_error
from ...sessions.records import Principal
from ...sessions.times import format_time, parse_expiry
from ...sessions.wording import did_you_mean
from ..output import say, say_json, table
from ..parser import CommandLine


def run(config: Config, arguments: CommandLine) -> int:
    """Run one of the commands about tokens, and return the exit code.

    Raises:
        ConfigError: the file is not named, cannot be changed, or holds a mistake.
    """
    path = config.server.tokens
    if path is None:
        raise ConfigError("server.tokens is not set; name a file there, or give --token-file FILE")
    match arguments.action:
        case "add":
            return _add(path, arguments)
        case "remove":
            return _remove(path, arguments)
        case _:
            return _list(path, arguments)


def _add(path: Path, arguments: CommandLine) -> int:
    principal = Principal(
        subject=arguments.subject,
        issuer=arguments.issuer or "",
        client_id=arguments.client_id or "",
    )
    texts = (principal.subject, principal.issuer, principal.client_id, arguments.name or "")
    if not principal.subject or not all(text.isprintable() for text in texts if text):
        return complain("a subject or an option is empty or has control characters", USAGE)
    try:
        expires = arguments.expires
        expires_at = None if expires is None else parse_expiry(expires, time.time())
    except ValueError as error:
        return complain(f"--expires {error}, or 90d", USAGE)
    secret, token = add_token(
        path, principal, expires_at, arguments.name or "", arguments.role or DEFAULT_ROLE
    )
    if arguments.json:
        say_json({"token": secret, **_describe(token)})
        return OK
    say(secret)
    end = "you remove it" if expires_at is None else format_time(expires_at)
    write_error(
        f"This token is shown only now. It is valid until {end}; {path} has its digest ({token.id}).\n"
    )
    return OK


def _remove(path: Path, arguments: CommandLine) -> int:
    try:
        token = remove_token(path, arguments.id)
    except LookupError:
        return complain(_describe_absence(path, arguments.id), NOT_FOUND)
    if arguments.json:
        say_json(_describe(token))
    else:
        say(f"removed {token.id} of {token.principal.subject}")
    return OK


def _describe_absence(path: Path, token_id: str) -> str:
    """Say why no token can be removed: no id begins like this, or several do, or it is a subject."""
    tokens = list(read_tokens(path).values())
    same = [each.id for each in tokens if token_id in (each.principal.subject, each.name)]
    if same and token_id:
        return f"{token_id} is no id; its tokens are {', '.join(same)}: give one of these"
    several = [each.id for each in tokens if each.id.startswith(token_id.lower())]
    if several and token_id:
        return f"{', '.join(several)} begin with {token_id}: give more of the id"
    hint = did_you_mean(token_id, [each.id for each in tokens])
    return f"{path} has no token {token_id or 'without an id'}.{hint} See: statehold tokens list"


def _list(path: Path, arguments: CommandLine) -> int:
    tokens = [_describe(token) for token in read_tokens(path).values()]
    if arguments.json:
        say_json({"tokens": tokens})
        return OK
    head = ["ID", "SUBJECT", "ISSUER", "CLIENT", "NAME", "ROLE", "EXPIRES", ""]
    keys = ("id", "subject", "issuer", "client_id", "name", "role", "expires")
    rows = [
        [*(token[key] or "" for key in keys), "expired" if token["expired"] else ""]
        for token in tokens
    ]
    say(table(head, rows) if rows else f"{path} holds no token.")
    return OK


def _describe(token: StaticToken) -> dict[str, str | bool | None]:
    principal, expires_at = token.principal, token.expires_at
    return {
        "id": token.id,
        "subject": principal.subject,
        "issuer": principal.issuer,
        "client_id": principal.client_id,
        "name": token.name,
        "role": token.role,
        "expires": None if expires_at is None else format_time(expires_at),
        "expired": token.is_expired(time.time()),
    }
