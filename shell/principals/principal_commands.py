"""The commands of `statehold principals`, with their arguments and options. Imports nothing heavy."""

from __future__ import annotations

import click

from ..parser import Command, Group
from ..session_commands import JSON_OPTION


def principals_group() -> Group:
    """Return the group with all its commands."""
    return Group(
        "principals",
        "See the callers of a store, and end the access of single ones.",
        "statehold principals list",
        commands=[
            Command(
                "list",
                "List the callers that have sessions or a policy: open sessions, stored bytes, last use.",
                "statehold principals list",
                JSON_OPTION,
            ),
            Command(
                "show",
                "Show the usage of a caller, its limits, and the policy that each limit comes from.",
                "statehold principals show ada",
                _subject(),
                _issuer(),
                JSON_OPTION,
            ),
            Command(
                "revoke",
                "Refuse a caller on every node, and end its sessions, streams and logins within a second.",
                "statehold principals revoke ada --reason offboarded",
                _subject(required=False),
                _issuer(),
                _token(),
                click.Option(["--reason"], metavar="TEXT", help="a note for the list and the log"),
                click.Option(
                    ["--until"], metavar="TIME", help="restore it then: 30d, 12h, a date or a time"
                ),
                click.Option(
                    ["--keep-sessions"],
                    is_flag=True,
                    help="pause its sessions, and do not close them",
                ),
                JSON_OPTION,
            ),
            Command(
                "restore",
                "Accept a revoked caller again.",
                "statehold principals restore ada",
                _subject(required=False),
                _issuer(),
                _token(),
                JSON_OPTION,
            ),
            Command(
                "forget",
                "Delete the sessions, logins, files and data key of a revoked caller.",
                "statehold principals forget ada",
                _subject(),
                _issuer(),
                JSON_OPTION,
            ),
        ],
    )


def _token() -> click.Option:
    return click.Option(
        ["--token"], metavar="NAME", help="the caller of the static token with this name"
    )


def _subject(*, required: bool = True) -> click.Argument:
    return click.Argument(
        ["subject"], required=required, metavar="SUBJECT", help="the caller, as `list` shows it"
    )


def _issuer() -> click.Option:
    return click.Option(["--issuer"], metavar="ISSUER", help="the issuer of the subject")
