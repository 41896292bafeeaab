"""`statehold skill`: the skill for coding agents, with the commands that they may run without asking."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path

from ...server.exit_codes import OK, USAGE
from ...server.printing import complain, write
from ..output import is_uv_run, say
from ..parser import CommandLine

READING = ("statehold tools:*", "statehold sessions list:*", "statehold sessions show:*")
"""The commands that change nothing. No call is among them: a call may run a shell, send a file and write one."""
_ALLOWED = re.compile(r"^allowed-tools: .*$", re.MULTILINE)
_PREFIX = re.compile(r"[A-Za-z0-9_.\-/]+")


def show_skill(arguments: CommandLine) -> int:
    """Print the skill, or write it below the folder of --install. Return the exit code."""
    prefixes: list[str] = arguments.allow or []
    for prefix in prefixes:
        if not _PREFIX.fullmatch(prefix):
            return complain(f"--allow: should begin the name of a tool, found {prefix!r}", USAGE)
    text = skill_text(prefixes)
    if arguments.install is None:
        write(text)
        return OK
    path = Path(arguments.install).expanduser() / "statehold" / "SKILL.md"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return complain(f"{error.filename or path}: {error.strerror}")
    say(f"wrote {path}")
    if is_uv_run() and Path(sys.prefix).name == ".venv":
        root = Path(sys.prefix).parent
        say(f"It says `statehold`, which this puts on the PATH: uv tool install --editable {root}")
    return OK


def skill_text(prefixes: list[str]) -> str:
    """Return the skill. Calls of tools whose names begin with one of `prefixes` are allowed."""
    text = files("statehold.server.gateway").joinpath("SKILL.md").read_text(encoding="utf-8")
    commands = [*READING, *(f"statehold call * {prefix}*" for prefix in prefixes)]
    line = f"allowed-tools: {', '.join(f'Bash({command})' for command in commands)}"
    return _ALLOWED.sub(line, text, count=1)
