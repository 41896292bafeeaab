"""The commands that call tools, for `--help` and the reference: call/ reads and runs them, without click."""

from __future__ import annotations

import click

from ..completion import SCRIPTS
from ..parser import Command, Word
from ..session_commands import JSON_OPTION


def _calls() -> list[click.Option]:
    return [
        JSON_OPTION,
        click.Option(["--quiet", "-q"], is_flag=True, help='leave out the page ("Snapshot")'),
        click.Option(["-o"], metavar="PATH", help="the file or the folder for pictures and files"),
        click.Option(["--timeout"], metavar="S", help="cancel the call after so many seconds"),
        click.Option(["--no-input"], is_flag=True, help="never ask here; exit with 6"),
        click.Option(
            ["--progress"], is_flag=True, help="progress on stderr also without a terminal"
        ),
        *remote_options(),
    ]


def remote_options() -> list[click.Option]:
    """Return the options of a command that also works with a server elsewhere."""
    return [
        click.Option(
            ["--url"], metavar="URL", help="a server elsewhere (slower: it loads the client)"
        ),
        click.Option(["--token-file"], metavar="FILE", help="the bearer token for --url"),
    ]


def tool_commands() -> list[Command]:
    """Return the commands."""
    session = click.Argument(["session"], metavar="SESSION", help="its name, or its id")
    return [
        Command(
            "call",
            "Call a tool in a session, which the first call creates.",
            "statehold call work browser_navigate url=https://example.com",
            session,
            click.Argument(["tool"], metavar="TOOL", help="as `statehold tools` lists it"),
            click.Argument(
                ["arguments"],
                nargs=-1,
                metavar="KEY=VALUE",
                help="a text, number, yes/no or list, as the tool wants it; KEY:=JSON, KEY=@FILE, KEY=- (stdin), or a JSON "
                "object with all of them",
            ),
            *_calls(),
            click.Option(["--new"], is_flag=True, help="the session must not exist"),
            click.Option(["--exists"], is_flag=True, help="the session must exist"),
            click.Option(
                ["--operation"],
                metavar="ID",
                help="run the call at most once, also when the command is repeated",
            ),
        ),
        Command(
            "answer",
            "Answer the question of a tool; `statehold call` prints it with its token.",
            "statehold answer park:x1y2 colour=red",
            click.Argument(["token"], metavar="TOKEN", help="the token of the question"),
            click.Argument(
                ["fields"], nargs=-1, metavar="KEY=VALUE", help="the fields of its form"
            ),
            *_calls(),
            click.Option(["--decline"], is_flag=True, help="decline to answer"),
            click.Option(["--cancel"], is_flag=True, help="dismiss the question"),
        ),
        Command(
            "tools",
            "List the tools, one line each, or show the arguments of some.",
            "statehold tools browser_click",
            click.Argument(["tools"], nargs=-1, metavar="TOOL", help="only these, with arguments"),
            click.Option(["--session"], metavar="NAME", help="those that a session offers"),
            click.Option(["--grep"], metavar="TEXT", help="those with this text"),
            JSON_OPTION,
            *remote_options(),
        ),
        Command(
            "skill",
            "Print the skill for coding agents, with the services that are configured.",
            "statehold skill --install .claude/skills",
            click.Option(["--install"], metavar="DIR", help="write DIR/statehold/SKILL.md instead"),
            click.Option(
                ["--allow"],
                metavar="PREFIX",
                multiple=True,
                help="have the agent call tools of this beginning without asking, such as browser_",
            ),
        ),
        Command(
            "completion",
            "Print the completion script of a shell.",
            "statehold completion bash",
            click.Argument(["shell"], type=Word(list(SCRIPTS)), help="the shell"),
        ),
    ]
