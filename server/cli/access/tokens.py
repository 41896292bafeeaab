"""`statehold tokens`: the static bearer tokens in the file that `server.tokens` names."""

from __future__ import annotations

import time
from pathlib import Path

from ....sessions.records import Principal
from ...auth.token_file import (
    StaticToken,
    add_token,
    format_time,
    parse_expiry,
    read_tokens,
    remove_token,
)
from ...config.access.auth import DEFAULT_ROLE
from ...config.model import Config, ConfigError
from ...exit_codes import NOT_FOUND, OK, USAGE
from ...printing import complain, write_error
from ..command_line import CommandLine
from ..output import say, say_json, table


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
    until = "" if expires_at is None else f" until {format_time(expires_at)}"
    write_error(
        f"{path} has the digest of this token, which is shown this once; it is valid{until}\n"
    )
    return OK


def _remove(path: Path, arguments: CommandLine) -> int:
    try:
        token = remove_token(path, arguments.id)
    except LookupError:
        return complain(
            f"no token of {path} has this id alone; see statehold tokens list", NOT_FOUND
        )
    if arguments.json:
        say_json(_describe(token))
    else:
        say(f"removed {token.id} of {token.principal.subject}")
    return OK


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


__all__ = ["run"]
