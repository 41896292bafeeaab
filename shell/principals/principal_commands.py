"""The commands of `statehold principals`, with their arguments and options. Imports nothing heavy."""

from __future__ import annotations

import click

from ..parser import Command, Group
from ..session_commands import JSON_OPTION


def principals_group() -> Group:
    """Return the group with all its commands."""
    return Group(
        "principals",
        "See the callers of a store, and limit single ones and groups (docs/policies.md).",
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
                "limit",
                "Set or remove limits of a caller or a group. Running servers use them within a second.",
                "statehold principals limit ada --sessions 5 --rate 60:10",
                _subject(required=False),
                click.Option(["--group"], metavar="GROUP", help="a group, instead of a caller"),
                _issuer(),
                *_limits(),
                click.Option(
                    ["--remove"],
                    multiple=True,
                    metavar="LIMIT",
                    help="leave a limit, such as stored-bytes, or `all`, to less specific policies; may be given again",
                ),
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
    return click.Option(
        ["--issuer"], metavar="ISSUER", help="the issuer of the subject or of the group"
    )


def _limits() -> list[click.Option]:
    count = click.IntRange(0)
    return [
        click.Option(["--sessions"], type=count, metavar="N", help="open sessions; 0: no limit"),
        click.Option(
            ["--stored-bytes"], metavar="SIZE", help="stored bytes, such as 500MiB; 0: no limit"
        ),
        click.Option(
            ["--calls-in-flight"], type=count, metavar="N", help="calls at a time; 0: no limit"
        ),
        click.Option(
            ["--rate"], metavar="N[:BURST]", help="calls a minute, and calls at once; 0: no limit"
        ),
        click.Option(
            ["--tool-rate"],
            multiple=True,
            metavar="PATTERN=N[:BURST]",
            help="the rate of a SERVICE or SERVICE/TOOL, with * for any text; may be given again",
        ),
        click.Option(["--idle"], metavar="TIME", help="longest time without use, such as 15min"),
        click.Option(["--lifetime"], metavar="TIME", help="longest lifetime of a session"),
        click.Option(
            ["--allow-services"], metavar="A,B", help='these services alone, with *; "" for none'
        ),
        click.Option(
            ["--allow-hosts"],
            metavar="A,B",
            help='these hosts alone in the built-in browser; "" for none',
        ),
    ]
