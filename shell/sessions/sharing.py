"""`statehold sessions share|unshare`: let another principal or a group view or use a session."""

from __future__ import annotations

from typing import Any

from ...server.config.model import Config
from ...server.exit_codes import OK
from ...sessions.json_codec import JSON
from ...sessions.records import Principal, SessionRecord
from ...sessions.store.sql import SQLStore
from ..output import CommandError, say, say_json
from ..parser import CommandLine
from ..principals.principals import KnownPrincipals
from .tool_calls import ToolCaller, parse_duration


async def change_shares(
    config: Config, store: SQLStore, record: SessionRecord, arguments: CommandLine
) -> int:
    """Share a session, or end a share of it."""
    grantee = _grantee(record, arguments)
    who = grantee.get("subject") or f"group {grantee['group']}"
    caller = ToolCaller(config, arguments)
    if arguments.action == "unshare":
        content = await caller.call(record, "session_unshare", **grantee)
        was_shared = content["was_shared"]
        text = (
            f"is shared with {who} no more"
            if was_shared
            else (
                f"was not shared with {who}; see: statehold sessions show {record.name or record.id}"
            )
        )
    else:
        seconds = parse_duration(arguments.seconds, "--for")
        content = await caller.call(
            record,
            "session_share",
            rights=arguments.rights,
            expires_in_seconds=seconds,
            **grantee,
        )
        text = f"is shared with {who} to {content['rights']} until {content['expires_at']}"
    if arguments.json:
        say_json(content)
    else:
        say(f"{record.name or record.id} {text}")
    if arguments.action == "share":
        known, issuer = await KnownPrincipals.read(config, store), grantee["issuer"]
        if "group" in grantee:
            known.warn_of_group(issuer, grantee["group"])
        else:
            known.warn_of_stranger(Principal(issuer=issuer, subject=grantee["subject"]))
    return OK


def _grantee(record: SessionRecord, arguments: CommandLine) -> JSON:
    if (arguments.subject is None) == (arguments.group is None):
        raise CommandError.usage("either --with or --group is needed; give one of them")
    issuer = arguments.issuer
    given: dict[str, Any] = {
        "subject": arguments.subject,
        "group": arguments.group,
        "issuer": Principal.of_key(record.owner).issuer if issuer is None else issuer,
    }
    return {name: value for name, value in given.items() if value is not None}
