"""The commands that call tools, for `--help` and the reference: call/ reads and runs them, without click."""

from __future__ import annotations

import click

from ..completion import SHELLS
from ..parser import Command, Group, Word, options
from .words import CALLS, OPTIONS, REMOTE

TASK = "sh_x1y2.task-z3"


def tool_commands() -> list[Command | Group]:
    """Return the commands."""
    task = click.Argument(["task"], metavar="ID", help="the id of the task")
    fields = click.Argument(
        ["fields"], nargs=-1, metavar="KEY=VALUE", help="the fields of its form"
    )
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
            "Answer the question of a tool: short for `statehold tasks answer`.",
            f"statehold answer {TASK} colour=red",
            task,
            fields,
            *options(OPTIONS["answer"]),
        ),
        Group(
            "tasks",
            "List the calls that go on, those of other clients included.",
            "statehold tasks",
            *options({name: OPTIONS["tasks"][name] for name in ("--json", *REMOTE)}),
            commands=[
                Command(
                    "wait",
                    "Wait for a call and print its result. Ctrl-C leaves the call alone.",
                    f"statehold tasks wait {TASK}",
                    task,
                    *options(CALLS),
                ),
                Command(
                    "answer",
                    "Answer the question of a call and print its result.",
                    f"statehold tasks answer {TASK} colour=red",
                    task,
                    fields,
                    *options(OPTIONS["answer"]),
                ),
                Command(
                    "cancel",
                    "Cancel a call. It may have taken effect.",
                    f"statehold tasks cancel {TASK}",
                    task,
                    *options(REMOTE),
                ),
            ],
            has_default=True,
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
