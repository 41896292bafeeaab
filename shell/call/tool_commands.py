"""The commands that call tools, for `--help` and the reference: call/ reads and runs them, without click."""

from __future__ import annotations

import click

from ..completion import SHELLS
from ..parser import Command, Word, options
from .words import OPTIONS


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
            *options(OPTIONS["call"]),
        ),
        Command(
            "answer",
            "Answer the question of a tool; `statehold call` prints it with its token.",
            "statehold answer park:x1y2 colour=red",
            click.Argument(["token"], metavar="TOKEN", help="the token of the question"),
            click.Argument(
                ["fields"], nargs=-1, metavar="KEY=VALUE", help="the fields of its form"
            ),
            *options(OPTIONS["answer"]),
        ),
        Command(
            "tools",
            "List the tools, one line each, or show the arguments of some.",
            "statehold tools browser_click",
            click.Argument(["tools"], nargs=-1, metavar="TOOL", help="only these, with arguments"),
            *options(OPTIONS["tools"]),
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
            click.Argument(["shell"], type=Word(list(SHELLS)), help="the shell"),
        ),
    ]
